// One request on its way through libcurl: written by the network thread, read by its caller.
//
// Thread safety: Start and the getters before it is handed to the network thread; Finish on that
// thread; Wait on the caller's. What is shared is guarded by mutex_.
#pragma once

#include <curl/curl.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "kube/access/client_config.h"
#include "kube/http/target.h"
#include "kube/http/transport.h"
#include "kube/http/wire.h"

namespace tessera::kube {

class Transfer {
 public:
  // kInvalidArgument for a path or a header that could break out of its place;
  // kFailedPrecondition as in transport.h.
  static Result<std::shared_ptr<Transfer>> Make(const ClientConfig& config, const Target& target,
                                                const WireOptions& options, const std::string& ca,
                                                const Request& request, bool is_stream);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  CURL* easy() const { return easy_; }
  void Finish(CURLcode code);

  struct News {
    std::string bytes;  // what has come since the last time
    int status = 0;     // of the answer, 0 until its headers are there
    std::int64_t retry_after_ns = -1;
    bool done = false;
    bool held = false;           // the network thread waits to be told to go on
    std::optional<Error> error;  // with done
  };
  // Until there is something new, `until_ns` of the steady clock passes, or `stop` is asked for.
  News Wait(std::int64_t until_ns, const std::stop_token& stop);

 private:
  Transfer(std::size_t max_bytes, bool is_stream) : max_bytes_(max_bytes), is_stream_(is_stream) {}
  Status SetUp(const ClientConfig& config, const Target& target, const WireOptions& options,
               const std::string& ca, const Request& request);
  Status AddHeader(const std::string& line);
  std::size_t OnBytes(const char* bytes, std::size_t size);
  void OnHeader(std::string_view line);
  Error ErrorOf(CURLcode code) const;

  static std::size_t WriteCallback(char* bytes, std::size_t one, std::size_t size, void* self);
  static std::size_t HeaderCallback(char* bytes, std::size_t one, std::size_t size, void* self);

  const std::size_t max_bytes_;
  const bool is_stream_;
  CURL* easy_ = nullptr;
  curl_slist* headers_ = nullptr;
  curl_slist* connect_to_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> words_{};
  std::string body_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  News news_;  // guarded by mutex_, as the next
  int told_status_ = 0;
  bool too_long_ = false;
};

}  // namespace tessera::kube
