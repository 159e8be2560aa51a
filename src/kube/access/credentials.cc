#include "kube/access/credentials.h"

#include <mutex>
#include <optional>
#include <utility>

#include "base/files.h"
#include "kube/access/exec_plugin.h"
#include "kube/text/base64.h"

namespace tessera::kube {
namespace {

constexpr std::size_t kMaxFile = 1u << 20;

class StaticCredentials final : public Credentials {
 public:
  explicit StaticCredentials(Identity identity) : identity_(std::move(identity)) {}
  Result<Identity> Get(std::stop_token) override { return identity_; }
  void Refused(const Identity&) override {}

 private:
  const Identity identity_;
};

std::string Trimmed(std::string text) {
  const auto blank = [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  std::size_t first = 0;
  while (first < text.size() && blank(text[first])) ++first;
  return text.substr(first);
}

// A token and a certificate in files that somebody else renews.
class FileCredentials final : public Credentials {
 public:
  FileCredentials(CredentialConfig config, Identity fixed, base::Clock& clock)
      : config_(std::move(config)), fixed_(std::move(fixed)), clock_(clock) {}

  Result<Identity> Get(std::stop_token) override {
    std::lock_guard lock(mutex_);
    const std::int64_t now = clock_.NowNs();
    if (cached_ && now < read_again_ns_) return *cached_;
    Result<Identity> fresh = Read();
    if (fresh) {
      cached_ = *fresh;
      read_again_ns_ = now + kReadAgainNs;
      return fresh;
    }
    if (!cached_) return fresh;
    read_again_ns_ = now + kLeewayNs;  // the old one may still be good
    return *cached_;
  }

  void Refused(const Identity& used) override {
    std::lock_guard lock(mutex_);
    if (cached_ == used) read_again_ns_ = 0;
  }

 private:
  Result<Identity> Read() const {
    Identity identity = fixed_;
    if (!config_.token_file.empty()) {
      const Result<std::string> text = base::ReadFile(config_.token_file, kMaxFile);
      if (!text) return FailIn("token", text.error());
      const std::string token = Trimmed(*text);
      if (token.empty()) return Fail(Code::kDataLoss, "token: " + config_.token_file + " is empty");
      identity.authorization = "Bearer " + token;
    }
    if (identity.certificate_pem.empty() && !config_.client_certificate_file.empty()) {
      Result<std::string> certificate = base::ReadFile(config_.client_certificate_file, kMaxFile);
      if (!certificate) return FailIn("client certificate", certificate.error());
      identity.certificate_pem = std::move(*certificate);
    }
    if (identity.key_pem.empty() && !config_.client_key_file.empty()) {
      Result<std::string> key = base::ReadFile(config_.client_key_file, kMaxFile);
      if (!key) return FailIn("client key", key.error());
      identity.key_pem = std::move(*key);
    }
    return identity;
  }

  const CredentialConfig config_;
  const Identity fixed_;
  base::Clock& clock_;
  std::mutex mutex_;
  std::optional<Identity> cached_;  // guarded by mutex_, as the next
  std::int64_t read_again_ns_ = 0;
};

class ExecCredentials final : public Credentials {
 public:
  ExecCredentials(ClientConfig config, base::Clock& clock)
      : config_(std::move(config)), clock_(clock) {}

  Result<Identity> Get(std::stop_token stop) override {
    std::lock_guard lock(mutex_);  // held while the plugin runs: the others want the same answer
    if (cached_ &&
        (!cached_->expires_seconds || clock_.WallSeconds() < *cached_->expires_seconds)) {
      return cached_->identity;
    }
    Result<ExecAnswer> answer = RunExecPlugin(config_, kExecTimeoutNs, stop);
    if (!answer) return Fail(answer.error());
    cached_ = std::move(*answer);
    return cached_->identity;
  }

  void Refused(const Identity& used) override {
    std::lock_guard lock(mutex_);
    if (cached_ && cached_->identity == used) cached_.reset();
  }

 private:
  const ClientConfig config_;
  base::Clock& clock_;
  std::mutex mutex_;
  std::optional<ExecAnswer> cached_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Credentials> MakeCredentials(const ClientConfig& config, base::Clock& clock) {
  const CredentialConfig& c = config.credential;
  if (c.exec) return std::make_unique<ExecCredentials>(config, clock);
  Identity fixed;
  fixed.certificate_pem = c.client_certificate_pem;
  fixed.key_pem = c.client_key_pem;
  if (!c.token.empty()) {
    fixed.authorization = "Bearer " + c.token;
  } else if (!c.username.empty()) {
    fixed.authorization = "Basic " + EncodeBase64(c.username + ":" + c.password);
  }
  if (c.token_file.empty() && c.client_certificate_file.empty() && c.client_key_file.empty()) {
    return std::make_unique<StaticCredentials>(std::move(fixed));
  }
  return std::make_unique<FileCredentials>(c, std::move(fixed), clock);
}

}  // namespace tessera::kube
