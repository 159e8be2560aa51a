// The real transport against a server of this process: answers, streams, cuts, silence, TLS.
#include "kube/http/wire.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kube/http/connect.h"
#include "kube/http/target.h"
#include "kube/pace/timer.h"
#include "kube/testing/http_server.h"
#include "kube/testing/temporary_folder.h"

namespace tessera::kube {
namespace {

using testing::HttpAnswer;
using testing::HttpRequest;
using testing::HttpServer;

constexpr std::int64_t kLong = 20'000;  // ms: only a test that fails waits as long

std::unique_ptr<Transport> WireTo(const std::string& url, ClientConfig config = {}) {
  config.server = url;
  auto wire = MakeWire(config, {});
  EXPECT_TRUE(wire) << wire.error().message;
  return std::move(*wire);
}

std::string Said(const Result<Response>& response) {
  return response ? std::to_string(response->status) + " " + response->body
                  : "failed: " + response.error().message;
}

LineHandler Collect(std::string& into) {
  return {.line = [&into](std::string& line) {
    into += line + ";";
    return true;
  }};
}

TEST(Wire, SendsWhatItIsGivenAndReadsTheAnswer) {
  HttpRequest seen;
  HttpServer server([&](const HttpRequest& request, HttpAnswer& answer) {
    seen = request;
    answer.Reply(429, "busy", {{"Retry-After", "7"}});
  });
  const auto wire = WireTo(server.url() + "/prefix/");
  Request request{.method = "PATCH", .path = "/api/v1/pods?limit=5", .body = "{}"};
  request.content_type = "application/merge-patch+json";
  request.identity.authorization = "Bearer t";
  const auto response = wire->Send(request, {});
  ASSERT_EQ(Said(response), "429 busy");
  EXPECT_EQ(response->retry_after_ns, 7 * kNsPerSecond);
  EXPECT_EQ(seen.method, "PATCH");
  EXPECT_EQ(seen.target, "/prefix/api/v1/pods?limit=5");
  EXPECT_EQ(seen.body, "{}");
  EXPECT_EQ(seen.headers["authorization"], "Bearer t");
  EXPECT_EQ(seen.headers["content-type"], "application/merge-patch+json");
  EXPECT_EQ(seen.headers["accept"], "application/json");
  EXPECT_EQ(seen.headers["user-agent"], "tessera");
}

TEST(Wire, KeepsItsConnection) {
  HttpServer server([](const HttpRequest& request, HttpAnswer& answer) {
    answer.Reply(200, request.method + " " + request.body);
  });
  const auto wire = WireTo(server.url());
  EXPECT_EQ(Said(wire->Send({.path = "/"}, {})), "200 GET ");
  EXPECT_EQ(Said(wire->Send({.method = "POST", .path = "/", .body = "x"}, {})), "200 POST x");
  EXPECT_EQ(Said(wire->Send({.method = "PUT", .path = "/"}, {})), "200 PUT ");
  EXPECT_EQ(Said(wire->Send({.method = "DELETE", .path = "/", .body = "y"}, {})), "200 DELETE y");
  EXPECT_EQ(server.connections(), 1);
}

TEST(Wire, BoundsTheAnswer) {
  HttpServer server(
      [](const HttpRequest&, HttpAnswer& answer) { answer.Reply(200, std::string(100'000, 'x')); });
  const auto wire = WireTo(server.url());
  EXPECT_EQ(wire->Send({.path = "/", .max_bytes = 99'999}, {}).error().code,
            Code::kResourceExhausted);
  EXPECT_EQ(wire->Send({.path = "/", .max_bytes = 100'000}, {})->body.size(), 100'000u);
}

TEST(Wire, ASlowAnswerMeetsTheDeadline) {
  HttpServer server([](const HttpRequest&, HttpAnswer& answer) {
    answer.Begin();
    answer.Write("{");
    EXPECT_TRUE(answer.WaitForEnd(kLong));
  });
  const auto wire = WireTo(server.url());
  EXPECT_EQ(wire->Send({.path = "/", .timeout_ns = 50 * kNsPerMs}, {}).error().code,
            Code::kDeadlineExceeded);
}

TEST(Wire, ACutConnectionIsNoAnswer) {
  HttpServer server([](const HttpRequest& request, HttpAnswer& answer) {
    if (request.target == "/half") {
      answer.Begin();
      answer.Write("{\"items\":");
    }
    answer.Reset();
  });
  const auto wire = WireTo(server.url());
  EXPECT_EQ(wire->Send({.path = "/"}, {}).error().code, Code::kDataLoss);
  EXPECT_EQ(wire->Send({.path = "/half"}, {}).error().code, Code::kDataLoss);
}

TEST(Wire, NobodyThereIsUnavailable) {
  std::string url;
  {
    HttpServer server([](const HttpRequest&, HttpAnswer&) {});
    url = server.url();
  }
  EXPECT_EQ(WireTo(url)->Send({.path = "/"}, {}).error().code, Code::kUnavailable);
}

TEST(Wire, StreamsLinesAsTheyCome) {
  std::atomic<int> lines{0};
  HttpServer server([&](const HttpRequest&, HttpAnswer& answer) {
    answer.Begin();
    answer.Write("one\ntw");
    while (lines == 0)
      std::this_thread::yield();  // the first line is there before the rest is sent
    answer.Write("o\nthree\n");
    answer.End();
  });
  const auto wire = WireTo(server.url());
  std::string seen;
  const LineHandler handler{.opened = [&] { seen += "opened;"; },
                            .line =
                                [&](std::string& line) {
                                  seen += line + ";";
                                  ++lines;
                                  return true;
                                }};
  EXPECT_EQ(Said(wire->Stream({.path = "/", .timeout_ns = 0}, handler, {})), "200 ");
  EXPECT_EQ(seen, "opened;one;two;three;");
}

TEST(Wire, HalfALineIsNotALine) {
  HttpServer server([](const HttpRequest& request, HttpAnswer& answer) {
    answer.Begin();
    answer.Write("one\ntw");
    if (request.target == "/reset") {
      answer.Reset();
    } else {
      answer.End();
    }
  });
  const auto wire = WireTo(server.url());
  for (const char* path : {"/end", "/reset"}) {
    std::string seen;
    const auto response = wire->Stream({.path = path, .timeout_ns = 0}, Collect(seen), {});
    EXPECT_EQ(response.error().code, Code::kDataLoss);
    EXPECT_TRUE(seen == "one;" || std::string(path) == "/reset") << seen;
  }
}

TEST(Wire, ARefusedStreamHasABodyAndNoLines) {
  HttpServer server([](const HttpRequest&, HttpAnswer& answer) {
    answer.Reply(410, "{\"code\":410}\n", {{"retry-after", "1"}});
  });
  const auto wire = WireTo(server.url());
  std::string seen;
  const auto response = wire->Stream({.path = "/"}, Collect(seen), {});
  EXPECT_EQ(Said(response), "410 {\"code\":410}\n");
  EXPECT_EQ(response->retry_after_ns, kNsPerSecond);
  EXPECT_EQ(seen, "");
}

TEST(Wire, ASilentStreamIsGivenUp) {
  HttpServer server([](const HttpRequest&, HttpAnswer& answer) {
    answer.Begin();
    answer.Write("one\n");
    EXPECT_TRUE(answer.WaitForEnd(kLong));  // we hang up
  });
  const auto wire = WireTo(server.url());
  std::string seen;
  const Request request{.path = "/", .timeout_ns = 0, .idle_ns = 100 * kNsPerMs};
  EXPECT_EQ(wire->Stream(request, Collect(seen), {}).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(seen, "one;");
}

// Longer than its idle time in all, each part of it well within.
TEST(Wire, AStreamThatIsSlowButNotSilentGoesOn) {
  constexpr int kLines = 17;
  HttpServer server([](const HttpRequest&, HttpAnswer& answer) {
    answer.Begin();
    for (int i = 0; i < kLines && answer.Write("x\n"); ++i) {
      RealTimer().WaitFor(100 * kNsPerMs, {});
    }
    answer.End();
  });
  const auto wire = WireTo(server.url());
  std::string seen;
  const Request request{.path = "/", .timeout_ns = 0, .idle_ns = 1500 * kNsPerMs};
  EXPECT_EQ(Said(wire->Stream(request, Collect(seen), {})), "200 ");
  EXPECT_EQ(seen.size(), 2u * kLines);
}

TEST(Wire, AStopOrAHandlerEndsAStream) {
  HttpServer server([](const HttpRequest&, HttpAnswer& answer) {
    answer.Begin();
    answer.Write("one\ntwo\n");
    EXPECT_TRUE(answer.WaitForEnd(kLong));
  });
  const auto wire = WireTo(server.url());
  std::stop_source stop;
  const LineHandler stops{.line = [&](std::string&) {
    stop.request_stop();
    return true;
  }};
  EXPECT_EQ(wire->Stream({.path = "/", .timeout_ns = 0}, stops, stop.get_token()).error().code,
            Code::kCancelled);
  const LineHandler enough{.line = [](std::string&) { return false; }};
  EXPECT_EQ(wire->Stream({.path = "/", .timeout_ns = 0}, enough, {})->status, 200);
}

TEST(Wire, BoundsALine) {
  HttpServer server([](const HttpRequest&, HttpAnswer& answer) {
    answer.Begin();
    answer.Write("short\n" + std::string(1000, 'x'));
    EXPECT_TRUE(answer.WaitForEnd(kLong));
  });
  const auto wire = WireTo(server.url());
  std::string seen;
  const Request request{.path = "/", .timeout_ns = 0, .max_bytes = 999};
  EXPECT_EQ(wire->Stream(request, Collect(seen), {}).error().code, Code::kResourceExhausted);
  EXPECT_EQ(seen, "short;");
}

// A handler that sleeps holds the server, not our memory; nothing is lost.
TEST(Wire, ASlowReaderHoldsTheServer) {
  constexpr int kLines = 2000;
  const std::string line(10'000, 'x');
  std::atomic<int> sent{0};
  HttpServer server([&](const HttpRequest&, HttpAnswer& answer) {
    answer.Begin();
    for (; sent < kLines; ++sent) answer.Write(line + "\n");
    answer.End();
  });
  const auto wire = WireTo(server.url());
  int seen = 0, sent_when_slow = 0;
  const LineHandler slow{.line = [&](std::string&) {
    if (++seen == 1) {
      // Until nothing more is taken from the server.
      for (int last = -1; last != sent;) {
        last = sent;
        RealTimer().WaitFor(100 * kNsPerMs, {});
      }
      sent_when_slow = sent;
    }
    return true;
  }};
  const auto response = wire->Stream({.path = "/", .timeout_ns = 0}, slow, {});
  EXPECT_EQ(Said(response), "200 ");
  EXPECT_EQ(seen, kLines);
  EXPECT_LT(sent_when_slow, kLines);
}

TEST(Wire, ManyThreadsShareIt) {
  HttpServer server(
      [](const HttpRequest& request, HttpAnswer& answer) { answer.Reply(200, request.target); });
  const auto wire = WireTo(server.url());
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string path = "/" + std::to_string(t) + "/" + std::to_string(i);
        if (Said(wire->Send({.path = path}, {})) == "200 " + path) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 160);
}

TEST(Wire, RefusesWhatCouldBreakOutOfItsPlace) {
  const auto wire = WireTo("http://127.0.0.1:9");
  for (const char* path : {"", "api", "/a b", "/a\r\nX: y", "/\xc3\xa4"}) {
    EXPECT_EQ(wire->Send({.path = path}, {}).error().code, Code::kInvalidArgument) << path;
  }
  Request request{.path = "/"};
  request.identity.authorization = "Bearer a\r\nX: y";
  EXPECT_EQ(wire->Send(request, {}).error().code, Code::kInvalidArgument);
}

TEST(Wire, SendsNoTokenInClearToAnotherMachine) {
  const auto wire = WireTo("http://192.0.2.1:9");
  Request request{.path = "/"};
  request.identity.authorization = "Bearer t";
  EXPECT_EQ(wire->Send(request, {}).error().code, Code::kFailedPrecondition);
}

class TlsTest : public ::testing::Test {
 protected:
  const testing::KeyPair authority_ = testing::MakeAuthority("authority");
  static void Echo(const HttpRequest& request, HttpAnswer& answer) {
    answer.Reply(200, request.client + "@" + request.headers.at("host").substr(0, 9));
  }
};

TEST_F(TlsTest, BothSidesProveWhoTheyAre) {
  HttpServer server(Echo, HttpServer::Tls{testing::Issue(authority_, "127.0.0.1", true),
                                          authority_.certificate_pem});
  const auto wire = WireTo(server.url(), {.ca_pem = authority_.certificate_pem});
  const testing::KeyPair client = testing::Issue(authority_, "alice", false);
  Request request{.path = "/"};
  request.identity.certificate_pem = client.certificate_pem;
  request.identity.key_pem = client.key_pem;
  EXPECT_EQ(Said(wire->Send(request, {})), "200 alice@127.0.0.1");
  EXPECT_FALSE(wire->Send({.path = "/"}, {}));  // without a certificate
}

TEST_F(TlsTest, AStrangerIsNotBelieved) {
  HttpServer server(Echo, HttpServer::Tls{testing::Issue(authority_, "127.0.0.1", true), ""});
  const auto stranger = testing::MakeAuthority("stranger");
  EXPECT_EQ(WireTo(server.url(), {.ca_pem = stranger.certificate_pem})
                ->Send({.path = "/"}, {})
                .error()
                .code,
            Code::kUnauthenticated);
  EXPECT_EQ(WireTo(server.url())->Send({.path = "/"}, {}).error().code, Code::kUnauthenticated);
  EXPECT_EQ(Said(WireTo(server.url(), {.insecure_skip_tls_verify = true})->Send({.path = "/"}, {})),
            "200 @127.0.0.1");
}

TEST_F(TlsTest, AServerMayGoByAnotherName) {
  HttpServer server(Echo, HttpServer::Tls{testing::Issue(authority_, "kubernetes", true), ""});
  ClientConfig config{.ca_pem = authority_.certificate_pem};
  EXPECT_EQ(WireTo(server.url(), config)->Send({.path = "/"}, {}).error().code,
            Code::kUnauthenticated);
  config.tls_server_name = "kubernetes";
  EXPECT_EQ(Said(WireTo(server.url(), config)->Send({.path = "/"}, {})), "200 @127.0.0.1");
}

TEST_F(TlsTest, AnAuthorityMayStandInAFile) {
  const testing::TemporaryFolder folder;
  HttpServer server(Echo, HttpServer::Tls{testing::Issue(authority_, "127.0.0.1", true), ""});
  ClientConfig config{.ca_file = folder.Write("ca.crt", authority_.certificate_pem)};
  EXPECT_EQ(Said(WireTo(server.url(), config)->Send({.path = "/"}, {})), "200 @127.0.0.1");
  config.ca_file = folder.Write("empty", "");
  EXPECT_EQ(WireTo(server.url(), config)->Send({.path = "/"}, {}).error().code, Code::kDataLoss);
}

TEST(Connected, IsAWireThatKnowsWhoWeAre) {
  HttpServer server([](const HttpRequest& request, HttpAnswer& answer) {
    answer.Reply(200, request.headers.at("authorization"));
  });
  ClientConfig config{.server = server.url()};
  config.credential.token = "t";
  const auto transport = Connect(config);
  ASSERT_TRUE(transport) << transport.error().message;
  EXPECT_EQ(Said((*transport)->Send({.path = "/"}, {})), "200 Bearer t");
  EXPECT_EQ(Connect({.server = "nonsense://"}).error().code, Code::kInvalidArgument);
}

TEST(Target, TakesServersAndRefusesTheRest) {
  EXPECT_EQ(TargetOf({.server = "https://a:6443/"})->base, "https://a:6443");
  EXPECT_TRUE(TargetOf({.server = "http://127.0.0.1:8001"})->may_carry_secrets);
  EXPECT_FALSE(TargetOf({.server = "http://a"})->may_carry_secrets);
  const Target named = *TargetOf({.server = "https://10.0.0.1/p", .tls_server_name = "k"});
  EXPECT_EQ(named.base, "https://k:443/p");
  EXPECT_EQ(named.host, "10.0.0.1:443");
  EXPECT_EQ(named.connect_to, "k:443:10.0.0.1:443");
  for (const char* server :
       {"", "ftp://a", "https://", "https://u@a", "https://a?b", "file:///a"}) {
    EXPECT_EQ(TargetOf({.server = server}).error().code, Code::kInvalidArgument) << server;
  }
}

}  // namespace
}  // namespace tessera::kube
