// When a request is sent again, after how long, as whom; and when it is not.
#include "kube/http/session.h"

#include <gtest/gtest.h>

#include "kube/http/lines.h"
#include "kube/testing/scripted_transport.h"

namespace tessera::kube {
namespace {

using testing::Broken;
using testing::FakeTimer;
using testing::ScriptedTransport;

// A token that changes each time it is refused.
class CountingCredentials final : public Credentials {
 public:
  Result<Identity> Get(std::stop_token) override {
    return Identity{.authorization = "Bearer " + std::to_string(refused_)};
  }
  void Refused(const Identity& used) override {
    if (used.authorization == "Bearer " + std::to_string(refused_)) ++refused_;
  }

 private:
  int refused_ = 0;
};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() { Make({}); }
  void Make(const SessionOptions& options) {
    auto wire = std::make_unique<ScriptedTransport>(timer_);
    wire_ = wire.get();
    session_ =
        MakeSession(std::move(wire), std::make_unique<CountingCredentials>(), options, timer_);
  }
  int Send(const Request& request = {}) {
    const auto response = session_->Send(request, {});
    if (!response) last_ = response.error().code;
    return response ? response->status : -1;
  }
  std::size_t Tries() const { return wire_->requests.size(); }
  std::int64_t Waited() const { return wire_->times_ns.back() - wire_->times_ns.front(); }

  FakeTimer timer_;
  ScriptedTransport* wire_ = nullptr;
  std::unique_ptr<Transport> session_;
  Code last_ = Code::kInternal;
};

TEST_F(SessionTest, ATokenThatWasRotatedIsTriedOnceMore) {
  wire_->Add(testing::Status(401));
  wire_->Add(testing::Status(200));
  EXPECT_EQ(Send(), 200);
  EXPECT_EQ(wire_->requests[0].identity.authorization, "Bearer 0");
  EXPECT_EQ(wire_->requests[1].identity.authorization, "Bearer 1");
  wire_->Add(testing::Status(401));
  wire_->Add(testing::Status(401));
  EXPECT_EQ(Send(), 401);
  EXPECT_EQ(Tries(), 4u);
}

TEST_F(SessionTest, WaitsAsLongAsTheServerSays) {
  wire_->Add(testing::Status(429, "", 7 * kNsPerSecond));
  wire_->Add(testing::Status(200));
  EXPECT_EQ(Send({.method = "POST"}), 200);
  EXPECT_EQ(Waited(), 7 * kNsPerSecond);
}

TEST_F(SessionTest, RetryAfterZeroIsNoInvitationToHammer) {
  for (int i = 0; i < 3; ++i) wire_->Add(testing::Status(503, "", 0));
  wire_->Add(testing::Status(200));
  EXPECT_EQ(Send({.method = "PATCH"}), 200);
  EXPECT_GE(Waited(), 700 * kNsPerMs);  // halves of 200, 400 and 800 ms
}

TEST_F(SessionTest, GivesTheAnswerBackWhenTheDeadlineIsNearer) {
  wire_->Add(testing::Status(429, "busy", 31 * kNsPerSecond));
  EXPECT_EQ(Send({.timeout_ns = 30 * kNsPerSecond}), 429);
  EXPECT_EQ(Tries(), 1u);
}

TEST_F(SessionTest, EachTryGetsTheTimeThatIsLeft) {
  wire_->Add(testing::Status(429, "", 10 * kNsPerSecond));
  wire_->Add(testing::Status(200));
  EXPECT_EQ(Send({.timeout_ns = 30 * kNsPerSecond}), 200);
  EXPECT_EQ(wire_->requests[0].timeout_ns, 30 * kNsPerSecond);
  EXPECT_EQ(wire_->requests[1].timeout_ns, 20 * kNsPerSecond);
}

TEST_F(SessionTest, OnlyReadsAreRepeatedWhenTheServerMayHaveDoneIt) {
  wire_->Add(testing::Status(500));
  wire_->Add(Broken(Code::kDataLoss));
  wire_->Add(testing::Status(200));
  EXPECT_EQ(Send(), 200);
  wire_->Add(testing::Status(500));
  EXPECT_EQ(Send({.method = "POST"}), 500);
  wire_->Add(Broken(Code::kDataLoss));
  EXPECT_EQ(Send({.method = "POST"}), -1);
  EXPECT_EQ(last_, Code::kDataLoss);
  wire_->Add(Broken(Code::kUnavailable));  // nothing was sent
  wire_->Add(testing::Status(201));
  EXPECT_EQ(Send({.method = "POST"}), 201);
  EXPECT_EQ(wire_->left(), 0u);
}

TEST_F(SessionTest, StopsAfterItsTriesAndWhenAskedNotToTry) {
  Make({.most_tries = 3});
  for (int i = 0; i < 5; ++i) wire_->Add(testing::Status(500));
  EXPECT_EQ(Send(), 500);
  EXPECT_EQ(Tries(), 3u);
  EXPECT_EQ(Send({.retry = false}), 500);
  EXPECT_EQ(Tries(), 4u);
}

TEST_F(SessionTest, ARateLimitSpacesRequestsAndRefusesWhatWouldComeTooLate) {
  Make({.requests_per_second = 2, .burst = 1});
  for (int i = 0; i < 5; ++i) wire_->Add(testing::Status(200));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Send(), 200);
  EXPECT_EQ(Waited(), 2 * kNsPerSecond);
  EXPECT_EQ(Send({.timeout_ns = kNsPerMs}), -1);
  EXPECT_EQ(last_, Code::kDeadlineExceeded);
  EXPECT_EQ(Tries(), 5u);
}

TEST_F(SessionTest, AStopEndsTheWait) {
  std::stop_source stop;
  wire_->Add(testing::Status(429, "", kNsPerSecond));
  wire_->Add(testing::Status(200));
  timer_.on_wait = [&] {
    if (Tries() == 1) stop.request_stop();
  };
  EXPECT_EQ(session_->Send({}, stop.get_token()).error().code, Code::kCancelled);
  EXPECT_EQ(Tries(), 1u);
}

TEST_F(SessionTest, StreamsAreAuthenticatedAndLeftToTheirCallers) {
  wire_->Add(testing::Status(401));
  wire_->Add(testing::Lines({"a", "b"}));
  std::string lines;
  const LineHandler handler{.line = [&](std::string& line) {
    lines += line;
    return true;
  }};
  EXPECT_EQ(session_->Stream({.timeout_ns = 0}, handler, {})->status, 200);
  EXPECT_EQ(lines, "ab");
  wire_->Add(testing::Status(503, "", kNsPerSecond));
  EXPECT_EQ(session_->Stream({.timeout_ns = 0}, handler, {})->status, 503);
  EXPECT_EQ(Tries(), 3u);
}

TEST(Lines, AreCutWhereverTheBytesAreCut) {
  const std::string text = "one\r\n\ntwo\nthree";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    LineSplitter splitter(100);
    std::string seen;
    for (std::size_t at = 0; at < text.size(); at += step) {
      EXPECT_EQ(splitter.Take(std::string_view(text).substr(at, step),
                              [&](std::string& line) {
                                seen += line + ";";
                                return true;
                              }),
                LineSplitter::Outcome::kGoOn);
    }
    EXPECT_EQ(seen, "one;two;") << step;
    EXPECT_TRUE(splitter.HasRest());
  }
}

TEST(Lines, AreBoundedAndEndWhenTheHandlerSaysSo) {
  LineSplitter splitter(4);
  int lines = 0;
  const auto count = [&](std::string&) { return ++lines < 2; };
  EXPECT_EQ(splitter.Take("1234\n12345", count), LineSplitter::Outcome::kTooLong);
  LineSplitter other(4);
  lines = 0;
  EXPECT_EQ(other.Take("1\n2\n3\n", count), LineSplitter::Outcome::kEnded);
  EXPECT_EQ(lines, 2);
}

}  // namespace
}  // namespace tessera::kube
