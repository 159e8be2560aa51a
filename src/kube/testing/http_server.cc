#include "kube/testing/http_server.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/clock.h"

namespace tessera::kube::testing {
namespace {

using Context = std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)>;

Context MakeContext(const HttpServer::Tls& tls) {
  Context context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  BIO* bio = BIO_new_mem_buf(tls.server.certificate_pem.data(), -1);
  X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  SSL_CTX_use_certificate(context.get(), certificate);
  X509_free(certificate);
  BIO_free(bio);
  bio = BIO_new_mem_buf(tls.server.key_pem.data(), -1);
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  SSL_CTX_use_PrivateKey(context.get(), key);
  EVP_PKEY_free(key);
  BIO_free(bio);
  if (!tls.client_ca_pem.empty()) {
    bio = BIO_new_mem_buf(tls.client_ca_pem.data(), -1);
    X509* ca = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), ca);
    X509_free(ca);
    BIO_free(bio);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return context;
}

std::string ClientName(SSL* ssl) {
  X509* certificate = ssl ? SSL_get1_peer_certificate(ssl) : nullptr;
  if (!certificate) return {};
  std::array<char, 256> name{};
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name.data(),
                            name.size());
  X509_free(certificate);
  return name.data();
}

std::string Lower(std::string_view text) {
  std::string lower;
  for (char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Fills `request` from a head without its last empty line.
void ParseHead(std::string_view head, HttpRequest& request) {
  const std::string_view first = head.substr(0, head.find("\r\n"));
  const std::size_t one = first.find(' '), two = first.rfind(' ');
  request.method = first.substr(0, one);
  request.target = first.substr(one + 1, two - one - 1);
  for (std::size_t at = first.size() + 2; at < head.size();) {
    const std::size_t end = std::min(head.find("\r\n", at), head.size());
    const std::string_view line = head.substr(at, end - at);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      std::string_view value = line.substr(colon + 1);
      while (value.starts_with(' ')) value.remove_prefix(1);
      request.headers[Lower(line.substr(0, colon))] = value;
    }
    at = end + 2;
  }
}

}  // namespace

bool HttpAnswer::Put(std::string_view bytes) {
  while (!bytes.empty() && keep_) {
    const long put = ssl_ ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                          : send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put <= 0) {
      keep_ = false;
    } else {
      bytes.remove_prefix(static_cast<std::size_t>(put));
    }
  }
  return keep_;
}

void HttpAnswer::Reply(int status, std::string_view body, const Headers& headers) {
  std::string head = "HTTP/1.1 " + std::to_string(status) + " Scripted\r\n";
  for (const auto& [name, value] : headers)
    head.append(name).append(": ").append(value).append("\r\n");
  head += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size());
  Put(head + "\r\n\r\n" + std::string(body));
}

void HttpAnswer::Begin(int status) {
  Put("HTTP/1.1 " + std::to_string(status) +
      " Scripted\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
}

bool HttpAnswer::Write(std::string_view chunk) {
  std::array<char, 32> size{};
  const int digits = std::snprintf(size.data(), size.size(), "%zx\r\n", chunk.size());
  return Put(std::string(size.data(), static_cast<std::size_t>(digits)) + std::string(chunk) +
             "\r\n");
}

void HttpAnswer::End() { Put("0\r\n\r\n"); }

void HttpAnswer::Reset() {
  const linger now{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  keep_ = false;
}

bool HttpAnswer::WaitForEnd(std::int64_t most_ms) {
  for (std::int64_t waited = 0; waited < most_ms; waited += 5) {
    if (server_.stopping()) return true;
    pollfd gone{fd_, POLLRDHUP, 0};
    if (poll(&gone, 1, 5) > 0) return true;
  }
  return false;
}

HttpServer::HttpServer(Handler handler, std::optional<Tls> tls)
    : handler_(std::move(handler)),
      context_(tls ? MakeContext(*tls) : Context(nullptr, SSL_CTX_free)),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      listen(listener_.get(), 64) == 0 &&
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port_ = ntohs(address.sin_port);
  }
  acceptor_ = std::thread([this] { Accept(); });
}

HttpServer::~HttpServer() {
  stopping_ = true;
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  {
    std::lock_guard lock(mutex_);
    for (int fd : open_) shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

std::string HttpServer::url() const {
  return (context_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
}

void HttpServer::Accept() {
  for (;;) {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    ++connections_;
    std::lock_guard lock(mutex_);
    open_.push_back(fd);
    threads_.emplace_back([this, fd] { Serve(fd); });
  }
}

void HttpServer::Serve(int fd) {
  SSL* ssl = context_ ? SSL_new(context_.get()) : nullptr;
  if (ssl) SSL_set_fd(ssl, fd);
  if (!ssl || SSL_accept(ssl) == 1) Talk(fd, ssl);
  if (ssl) SSL_free(ssl);
  std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  close(fd);
}

void HttpServer::Talk(int fd, SSL* ssl) {
  std::string text;
  const auto more = [&] {
    std::array<char, 16384> buffer;
    const long got = ssl ? SSL_read(ssl, buffer.data(), buffer.size())
                         : recv(fd, buffer.data(), buffer.size(), 0);
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    return got > 0;
  };
  while (!stopping_) {
    std::size_t end = 0;
    while ((end = text.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return;
    }
    HttpRequest request;
    request.client = ClientName(ssl);
    ParseHead(std::string_view(text).substr(0, end), request);
    text.erase(0, end + 4);
    const auto length = request.headers.find("content-length");
    const std::size_t size = length == request.headers.end() ? 0 : std::stoul(length->second);
    while (text.size() < size) {
      if (!more()) return;
    }
    request.body = text.substr(0, size);
    text.erase(0, size);
    HttpAnswer answer(*this, fd, ssl);
    handler_(request, answer);
    if (!answer.keep_) return;
  }
}

}  // namespace tessera::kube::testing
