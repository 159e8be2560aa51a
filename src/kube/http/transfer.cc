#include "kube/http/transfer.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "base/plain_text.h"
#include "kube/pace/timer.h"

namespace tessera::kube {
namespace {

constexpr std::size_t kHeldBytes = 1u << 20;  // of a stream that is not read
constexpr std::int64_t kMostRetrySeconds = 300;

// Nothing that could end a line or a word of a request.
bool IsClean(std::string_view text, char lowest) {
  return std::all_of(text.begin(), text.end(), [&](char c) { return c >= lowest && c < 0x7f; });
}

curl_blob BlobOf(const std::string& bytes) {
  return {const_cast<char*>(bytes.data()), bytes.size(), CURL_BLOB_COPY};
}

bool IsRetryAfter(std::string_view line, std::string_view& value) {
  constexpr std::string_view kName = "retry-after:";
  if (line.size() < kName.size()) return false;
  for (std::size_t i = 0; i < kName.size(); ++i) {
    const char c = line[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c) != kName[i]) return false;
  }
  value = line.substr(kName.size());
  while (value.starts_with(' ')) value.remove_prefix(1);
  return true;
}

}  // namespace

Result<std::shared_ptr<Transfer>> Transfer::Make(const ClientConfig& config, const Target& target,
                                                 const WireOptions& options, const std::string& ca,
                                                 const Request& request, bool is_stream) {
  if (!request.path.starts_with('/') || !IsClean(request.path, '!')) {
    return Fail(Code::kInvalidArgument,
                "path '" + base::Shown(request.path) + "': legal is /... with everything escaped");
  }
  if (!IsClean(request.method, 'A') || !IsClean(request.content_type, ' ') ||
      !IsClean(request.identity.authorization, ' ')) {
    return Fail(Code::kInvalidArgument, "a method, content type or token that no header may have");
  }
  if (!target.may_carry_secrets && !request.identity.authorization.empty()) {
    return Fail(Code::kFailedPrecondition,
                "server '" + base::Shown(config.server) + "': credentials need https");
  }
  std::shared_ptr<Transfer> transfer(new Transfer(request.max_bytes, is_stream));
  if (const Status done = transfer->SetUp(config, target, options, ca, request); !done) {
    return Fail(done.error());
  }
  return transfer;
}

Transfer::~Transfer() {
  curl_easy_cleanup(easy_);
  curl_slist_free_all(headers_);
  curl_slist_free_all(connect_to_);
}

Status Transfer::AddHeader(const std::string& line) {
  curl_slist* longer = curl_slist_append(headers_, line.c_str());
  if (!longer) return Fail(Code::kResourceExhausted, "no memory");
  headers_ = longer;
  return {};
}

Status Transfer::SetUp(const ClientConfig& config, const Target& target, const WireOptions& options,
                       const std::string& ca, const Request& request) {
  easy_ = curl_easy_init();
  if (!easy_) return Fail(Code::kResourceExhausted, "no memory for a request");
  bool good = true;
  const auto set = [&](CURLoption option, auto value) {
    good = good && curl_easy_setopt(easy_, option, value) == CURLE_OK;
  };
  set(CURLOPT_URL, (target.base + request.path).c_str());
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PRIVATE, static_cast<void*>(this));
  set(CURLOPT_ERRORBUFFER, words_.data());
  set(CURLOPT_USERAGENT, options.user_agent.c_str());
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout_ns / kNsPerMs));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, 30L);
  set(CURLOPT_TCP_KEEPINTVL, 10L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_WRITEFUNCTION, &WriteCallback);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_HEADERFUNCTION, &HeaderCallback);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  if (is_stream_) {
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  } else {
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
    set(CURLOPT_PIPEWAIT, 1L);
    set(CURLOPT_ACCEPT_ENCODING, "");  // all that curl knows; a list is a tenth when compressed
  }
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (config.insecure_skip_tls_verify) {
    set(CURLOPT_SSL_VERIFYPEER, 0L);
    set(CURLOPT_SSL_VERIFYHOST, 0L);
  } else if (!ca.empty()) {
    const curl_blob blob = BlobOf(ca);
    set(CURLOPT_CAINFO_BLOB, &blob);
  }
  if (!request.identity.certificate_pem.empty()) {
    const curl_blob certificate = BlobOf(request.identity.certificate_pem);
    const curl_blob key = BlobOf(request.identity.key_pem);
    set(CURLOPT_SSLCERT_BLOB, &certificate);
    set(CURLOPT_SSLKEY_BLOB, &key);
  }
  if (config.proxy_url) set(CURLOPT_PROXY, config.proxy_url->c_str());
  if (!target.connect_to.empty()) {
    connect_to_ = curl_slist_append(nullptr, target.connect_to.c_str());
    set(CURLOPT_CONNECT_TO, connect_to_);
    if (const Status done = AddHeader("Host: " + target.host); !done) return done;
  }
  if (!request.identity.authorization.empty()) {
    if (const Status done = AddHeader("Authorization: " + request.identity.authorization); !done) {
      return done;
    }
  }
  if (const Status done = AddHeader("Accept: application/json"); !done) return done;
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" ||
      request.method == "PATCH") {
    body_ = request.body;
    if (const Status done = AddHeader("Content-Type: " + request.content_type); !done) return done;
    if (const Status done = AddHeader("Expect:"); !done) return done;
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body_.size()));
    set(CURLOPT_POSTFIELDS, body_.data());
  }
  set(CURLOPT_HTTPHEADER, headers_);
  if (!good) return Fail(Code::kInternal, "curl does not take an option of ours");
  return {};
}

std::size_t Transfer::WriteCallback(char* bytes, std::size_t one, std::size_t size, void* self) {
  return static_cast<Transfer*>(self)->OnBytes(bytes, one * size);
}

std::size_t Transfer::HeaderCallback(char* bytes, std::size_t one, std::size_t size, void* self) {
  static_cast<Transfer*>(self)->OnHeader(std::string_view(bytes, one * size));
  return one * size;
}

std::size_t Transfer::OnBytes(const char* bytes, std::size_t size) {
  std::lock_guard lock(mutex_);
  const bool opened = news_.status >= 200 && news_.status < 300;
  if (is_stream_ && opened) {
    if (news_.bytes.size() >= kHeldBytes) {
      news_.held = true;
      changed_.notify_all();
      return CURL_WRITEFUNC_PAUSE;
    }
  } else if (news_.bytes.size() + size > max_bytes_) {
    too_long_ = true;
    return 0;
  }
  news_.bytes.append(bytes, size);
  if (is_stream_) changed_.notify_all();
  return size;
}

void Transfer::OnHeader(std::string_view line) {
  std::lock_guard lock(mutex_);
  if (line.starts_with("HTTP/")) {
    news_.retry_after_ns = -1;
    return;
  }
  std::string_view value;
  if (IsRetryAfter(line, value)) {
    std::int64_t seconds = 0;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (read.ec == std::errc() && seconds >= 0) {
      news_.retry_after_ns = std::min(seconds, kMostRetrySeconds) * kNsPerSecond;
    }
    return;
  }
  if (line != "\r\n" && line != "\n") return;
  long status = 0;
  curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
  if (status < 200) return;  // 100 Continue and its kin
  news_.status = static_cast<int>(status);
  if (is_stream_) changed_.notify_all();
}

Error Transfer::ErrorOf(CURLcode code) const {
  const char* words = words_[0] ? words_.data() : curl_easy_strerror(code);
  const std::string text = base::Message(words);
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PROXY:
    case CURLE_OPERATION_TIMEDOUT:  // of connecting: the rest is timed by the caller
      return {Code::kUnavailable, text};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
      return {Code::kUnauthenticated, text};
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_WEIRD_SERVER_REPLY:
      return {Code::kDataLoss, text};
    case CURLE_ABORTED_BY_CALLBACK:
      return {Code::kCancelled, "the client was closed"};
    case CURLE_OUT_OF_MEMORY:
      return {Code::kResourceExhausted, text};
    default:
      return {Code::kInternal, text};
  }
}

void Transfer::Finish(CURLcode code) {
  std::lock_guard lock(mutex_);
  if (news_.done) return;
  news_.done = true;
  if (too_long_) {
    news_.error = Error{Code::kResourceExhausted,
                        "an answer of more than " + std::to_string(max_bytes_) + " bytes"};
  } else if (code != CURLE_OK) {
    news_.error = ErrorOf(code);
  }
  changed_.notify_all();
}

Transfer::News Transfer::Wait(std::int64_t until_ns, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto is_new = [&] {
    if (news_.done) return true;
    return is_stream_ && (!news_.bytes.empty() || news_.status != told_status_);
  };
  using Clock = std::chrono::steady_clock;
  if (until_ns == INT64_MAX) {
    changed_.wait(lock, stop, is_new);
  } else {
    changed_.wait_until(lock, stop, Clock::time_point(std::chrono::nanoseconds(until_ns)), is_new);
  }
  News news = news_;
  if (is_stream_ || news_.done) {
    news_.bytes.clear();
    news_.held = false;
    told_status_ = news_.status;
  } else {
    news.bytes.clear();
  }
  return news;
}

}  // namespace tessera::kube
