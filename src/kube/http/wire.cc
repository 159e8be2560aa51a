#include "kube/http/wire.h"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/files.h"
#include "kube/http/lines.h"
#include "kube/http/target.h"
#include "kube/http/transfer.h"
#include "kube/pace/timer.h"

namespace tessera::kube {
namespace {

constexpr std::size_t kMaxAuthorities = 4u << 20;
constexpr int kLookEveryMs = 1000;  // when nothing wakes the network thread

using TransferPtr = std::shared_ptr<Transfer>;

// The network thread: the only one that touches the multi handle, but to wake it.
class Network {
 public:
  explicit Network(CURLM* multi) : multi_(multi), thread_([this] { Run(); }) {}
  ~Network() {
    {
      std::lock_guard lock(mutex_);
      quit_ = true;
    }
    curl_multi_wakeup(multi_);
    thread_.join();
    curl_multi_cleanup(multi_);
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  enum class Order { kAdd, kRemove, kGoOn };
  void Post(Order order, const TransferPtr& transfer) {
    {
      std::lock_guard lock(mutex_);
      if (!quit_)
        orders_.emplace_back(order, transfer);
      else
        transfer->Finish(CURLE_ABORTED_BY_CALLBACK);
    }
    curl_multi_wakeup(multi_);
  }

 private:
  void Run() {
    for (;;) {
      std::vector<std::pair<Order, TransferPtr>> orders;
      bool quit = false;
      {
        std::lock_guard lock(mutex_);
        orders.swap(orders_);
        quit = quit_;
      }
      for (auto& [order, transfer] : orders) Obey(order, std::move(transfer));
      if (quit) break;
      int running = 0;
      curl_multi_perform(multi_, &running);
      int left = 0;
      while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
        if (message->msg == CURLMSG_DONE) End(message->easy_handle, message->data.result);
      }
      curl_multi_poll(multi_, nullptr, 0, kLookEveryMs, nullptr);
    }
    while (!active_.empty()) End(active_.begin()->first, CURLE_ABORTED_BY_CALLBACK);
  }

  void Obey(Order order, TransferPtr transfer) {
    CURL* const easy = transfer->easy();
    if (order == Order::kAdd) {
      if (curl_multi_add_handle(multi_, easy) != CURLM_OK) {
        transfer->Finish(CURLE_OUT_OF_MEMORY);
      } else {
        active_.emplace(easy, std::move(transfer));
      }
    } else if (active_.contains(easy)) {
      if (order == Order::kGoOn) {
        curl_easy_pause(easy, CURLPAUSE_CONT);
      } else {
        End(easy, CURLE_ABORTED_BY_CALLBACK);
      }
    }
  }

  void End(CURL* easy, CURLcode code) {
    const auto at = active_.find(easy);
    if (at == active_.end()) return;
    const TransferPtr transfer = std::move(at->second);
    active_.erase(at);
    curl_multi_remove_handle(multi_, easy);
    transfer->Finish(code);
  }

  CURLM* const multi_;
  std::unordered_map<CURL*, TransferPtr> active_;  // of the network thread alone
  std::mutex mutex_;
  std::vector<std::pair<Order, TransferPtr>> orders_;  // guarded by mutex_, as the next
  bool quit_ = false;
  std::thread thread_;
};

class Wire final : public Transport {
 public:
  Wire(ClientConfig config, Target target, WireOptions options, CURLM* multi)
      : config_(std::move(config)),
        target_(std::move(target)),
        options_(std::move(options)),
        network_(multi) {}

  Result<Response> Send(const Request& request, std::stop_token stop) override {
    return Run(request, nullptr, stop);
  }
  Result<Response> Stream(const Request& request, const LineHandler& handler,
                          std::stop_token stop) override {
    return Run(request, &handler, stop);
  }

 private:
  Result<Response> Run(const Request& request, const LineHandler* handler,
                       const std::stop_token& stop);
  Result<std::string> Authorities();

  const ClientConfig config_;
  const Target target_;
  const WireOptions options_;
  std::mutex mutex_;
  std::string authorities_;  // guarded by mutex_, as the next: what ca_file had
  std::int64_t read_again_ns_ = 0;
  Network network_;  // last: its thread ends first
};

Result<std::string> Wire::Authorities() {
  if (!config_.ca_pem.empty() || config_.ca_file.empty()) return config_.ca_pem;
  std::lock_guard lock(mutex_);
  const std::int64_t now = RealTimer().NowNs();
  if (authorities_.empty() || now >= read_again_ns_) {
    Result<std::string> read = base::ReadFile(config_.ca_file, kMaxAuthorities);
    // The last one serves as long as a new one cannot be read; never the system's in its place.
    if (read && !read->empty()) {
      authorities_ = std::move(*read);
    } else if (authorities_.empty()) {
      return read ? Fail(Code::kDataLoss, "certificate authority: " + config_.ca_file + " is empty")
                  : FailIn("certificate authority", read.error());
    }
    read_again_ns_ = now + kReadAgainNs;
  }
  return authorities_;
}

Result<Response> Wire::Run(const Request& request, const LineHandler* handler,
                           const std::stop_token& stop) {
  Timer& timer = RealTimer();
  const std::int64_t start = timer.NowNs();
  const Result<std::string> ca = Authorities();
  if (!ca) return Fail(ca.error());
  const Result<TransferPtr> made =
      Transfer::Make(config_, target_, options_, *ca, request, handler != nullptr);
  if (!made) return Fail(made.error());
  const TransferPtr& transfer = *made;
  network_.Post(Network::Order::kAdd, transfer);
  const auto leave = [&](Code code, std::string message) {
    network_.Post(Network::Order::kRemove, transfer);
    return Fail(code, std::move(message));
  };

  const std::int64_t deadline = request.timeout_ns > 0 ? start + request.timeout_ns : INT64_MAX;
  LineSplitter lines(request.max_bytes);
  Response response;
  bool opened = false;
  for (std::int64_t last_byte = start;;) {
    const std::int64_t silent =
        request.idle_ns > 0 && handler ? last_byte + request.idle_ns : INT64_MAX;
    Transfer::News news = transfer->Wait(std::min(deadline, silent), stop);
    response.status = news.status;
    response.retry_after_ns = news.retry_after_ns;
    if (news.held) network_.Post(Network::Order::kGoOn, transfer);
    const bool came = !news.bytes.empty() || (!opened && news.status != 0);
    if (handler && response.ok()) {
      if (!opened && handler->opened) handler->opened();
      opened = true;
      switch (lines.Take(news.bytes, handler->line)) {
        case LineSplitter::Outcome::kGoOn:
          break;
        case LineSplitter::Outcome::kEnded:
          network_.Post(Network::Order::kRemove, transfer);
          return response;
        case LineSplitter::Outcome::kTooLong:
          return leave(Code::kResourceExhausted,
                       "a line of more than " + std::to_string(request.max_bytes) + " bytes");
      }
    } else {
      response.body += news.bytes;
    }
    if (news.done) {
      if (news.error) return Fail(*news.error);
      if (lines.HasRest()) return Fail(Code::kDataLoss, "the stream ended in the middle of a line");
      return response;
    }
    if (stop.stop_requested()) return leave(Code::kCancelled, "given up");
    const std::int64_t now = timer.NowNs();
    if (came) last_byte = now;
    if (now >= deadline) return leave(Code::kDeadlineExceeded, "no answer in time");
    if (request.idle_ns > 0 && handler && now >= last_byte + request.idle_ns) {
      return leave(Code::kDeadlineExceeded, "silent for too long");
    }
  }
}

}  // namespace

Result<std::unique_ptr<Transport>> MakeWire(const ClientConfig& config,
                                            const WireOptions& options) {
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (global != CURLE_OK) return Fail(Code::kInternal, "curl cannot be used");
  Result<Target> target = TargetOf(config);
  if (!target) return Fail(target.error());
  CURLM* const multi = curl_multi_init();
  if (!multi) return Fail(Code::kResourceExhausted, "no memory for connections");
  return std::make_unique<Wire>(config, std::move(*target), options, multi);
}

}  // namespace tessera::kube
