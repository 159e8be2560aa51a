// A small HTTP/1.1 server in this process, whose answers may be as bad as a test wants them.
//
// Thread safety: the handler is called on one thread a connection, several at a time.
#pragma once

#include <openssl/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "kube/testing/certificates.h"

namespace tessera::kube::testing {

struct HttpRequest {
  std::string method, target, body;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string client;                          // common name of the client's certificate
};

class HttpServer;

// The answer to one request.
class HttpAnswer {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  void Reply(int status, std::string_view body, const Headers& headers = {});
  // A body of unknown length, in chunks. False: the client has gone.
  void Begin(int status = 200);
  bool Write(std::string_view chunk);
  void End();
  // The connection is cut, with a reset, in the middle of whatever it was.
  void Reset();
  // Until the client has gone or the server stops; true when one of them happened in time.
  bool WaitForEnd(std::int64_t most_ms);

 private:
  friend class HttpServer;
  HttpAnswer(HttpServer& server, int fd, ssl_st* ssl) : server_(server), fd_(fd), ssl_(ssl) {}
  bool Put(std::string_view bytes);

  HttpServer& server_;
  const int fd_;
  ssl_st* const ssl_;
  bool keep_ = true;
};

class HttpServer {
 public:
  using Handler = std::function<void(const HttpRequest&, HttpAnswer&)>;
  struct Tls {
    KeyPair server;
    std::string client_ca_pem;  // empty: clients need no certificate
  };

  explicit HttpServer(Handler handler, std::optional<Tls> tls = std::nullopt);
  ~HttpServer();

  int port() const { return port_; }
  std::string url() const;  // http(s)://127.0.0.1:port
  int connections() const { return connections_; }
  bool stopping() const { return stopping_; }

 private:
  void Accept();
  void Serve(int fd);
  void Talk(int fd, ssl_st* ssl);

  const Handler handler_;
  std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)> context_;
  base::Fd listener_;
  int port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<int> open_;             // guarded by mutex_, as the next
  std::vector<std::thread> threads_;  // one a connection
  std::thread acceptor_;
};

}  // namespace tessera::kube::testing
