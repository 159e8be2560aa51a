// Events: what is written, how often, and what becomes of those that are not taken.
#include "kube/control/events.h"

#include <gtest/gtest.h>

#include <thread>

#include "kube/testing/api_model.h"
#include "kube/testing/fake_timer.h"
#include "kube/text/json.h"

namespace tessera::kube {
namespace {

using testing::ModelTransport;

constexpr const char* kEventsOfA = "/apis/events.k8s.io/v1/namespaces/a/events";

class EventsTest : public ::testing::Test {
 protected:
  EventsTest() { Make({}); }
  void Make(EventsOptions options) {
    options.controller = "example.com/c";
    options.instance = "c-1";
    recorder_ = std::make_unique<EventRecorder>(api_, options, timer_, Jitter(1));
  }
  static ClusterEvent Event(const std::string& pod, const std::string& note = "why") {
    return {.regarding = {"v1", "Pod", "a", pod, "uid-" + pod},
            .reason = "Refused",
            .action = "Filter",
            .note = note,
            .warning = true};
  }
  boost::json::array Written(const char* path = kEventsOfA) {
    const auto list = ParseJson(model_.Handle("GET", path, "", "").body).value();
    return At(list, {"items"})->as_array();
  }
  std::size_t Writes() const { return model_.writes(); }

  testing::ApiModel model_;
  ModelTransport transport_{model_};
  testing::FakeTimer timer_;
  Api api_{transport_, "test"};
  std::unique_ptr<EventRecorder> recorder_;
};

TEST_F(EventsTest, WritesWhatTheApiAsksFor) {
  recorder_->Record(Event("p", "line\none"));
  EXPECT_GT(recorder_->Step({}), timer_.NowNs());
  ASSERT_EQ(Written().size(), 1u);
  const boost::json::value event = Written()[0];
  EXPECT_EQ(StringAt(event, {"reason"}), "Refused");
  EXPECT_EQ(StringAt(event, {"action"}), "Filter");
  EXPECT_EQ(StringAt(event, {"type"}), "Warning");
  EXPECT_EQ(StringAt(event, {"note"}), "line?one");
  EXPECT_EQ(StringAt(event, {"reportingController"}), "example.com/c");
  EXPECT_EQ(StringAt(event, {"reportingInstance"}), "c-1");
  EXPECT_EQ(StringAt(event, {"regarding", "name"}), "p");
  EXPECT_EQ(StringAt(event, {"regarding", "namespace"}), "a");
  EXPECT_EQ(StringAt(event, {"regarding", "uid"}), "uid-p");
  EXPECT_EQ(StringAt(event, {"eventTime"}).size(), 27u);
  EXPECT_TRUE(StringAt(event, {"metadata", "name"}).starts_with("p."));
  EXPECT_EQ(At(event, {"series"}), nullptr);
}

TEST_F(EventsTest, TheSameAgainCountsAndIsWrittenOnceARefresh) {
  recorder_->Record(Event("p"));
  recorder_->Step({});
  for (int i = 0; i < 50; ++i) {
    recorder_->Record(Event("p"));
    recorder_->Step({});
  }
  EXPECT_EQ(Writes(), 1u);
  timer_.Advance(60 * kNsPerSecond);
  recorder_->Step({});
  EXPECT_EQ(Writes(), 2u);
  ASSERT_EQ(Written().size(), 1u);
  EXPECT_EQ(*At(Written()[0], {"series", "count"}), 51);
}

TEST_F(EventsTest, AnotherNoteIsAnotherEventOnceARefresh) {
  recorder_->Record(Event("p", "1 free"));
  recorder_->Step({});
  recorder_->Record(Event("p", "2 free"));
  recorder_->Record(Event("p", "3 free"));
  recorder_->Step({});
  EXPECT_EQ(Writes(), 1u);
  timer_.Advance(60 * kNsPerSecond);
  recorder_->Step({});
  ASSERT_EQ(Written().size(), 2u);
  EXPECT_EQ(StringAt(Written()[1], {"note"}), "3 free");
}

TEST_F(EventsTest, AfterALongTimeItIsANewOne) {
  recorder_->Record(Event("p"));
  recorder_->Step({});
  timer_.Advance(361 * kNsPerSecond);
  recorder_->Record(Event("p"));
  recorder_->Step({});
  EXPECT_EQ(Written().size(), 2u);
}

TEST_F(EventsTest, ObjectsWithoutANamespaceAreToldOfInDefault) {
  ClusterEvent event = Event("n");
  event.regarding = {"v1", "Node", "", "n", ""};
  recorder_->Record(event);
  recorder_->Step({});
  ASSERT_EQ(Written("/apis/events.k8s.io/v1/namespaces/default/events").size(), 1u);
}

TEST_F(EventsTest, HasARateAndABound) {
  Make({.per_second = 2, .burst = 3, .most_series = 10});
  for (int i = 0; i < 20; ++i) recorder_->Record(Event("p" + std::to_string(i)));
  EXPECT_EQ(recorder_->dropped(), 10u);
  recorder_->Step({});
  EXPECT_EQ(Writes(), 3u);
  timer_.Advance(kNsPerSecond);
  recorder_->Step({});
  EXPECT_EQ(Writes(), 5u);
  recorder_->Record(Event("late"));  // there is room: those that were sent make it
  EXPECT_EQ(recorder_->dropped(), 10u);
}

TEST_F(EventsTest, TriesAgainAndGivesUpInTheEnd) {
  int tries = 0;
  transport_.fault = [&](const Request&) -> std::optional<ModelTransport::Fault> {
    ++tries;
    return ModelTransport::Fault{Code::kUnavailable, false};
  };
  recorder_->Record(Event("p"));
  for (int i = 0; i < 30; ++i) {
    const std::int64_t next = recorder_->Step({});
    timer_.Advance(std::max<std::int64_t>(next - timer_.NowNs(), 0));
  }
  EXPECT_EQ(tries, 12);
  EXPECT_EQ(recorder_->dropped(), 1u);
  transport_.fault = nullptr;
  recorder_->Record(Event("p"));
  timer_.Advance(60 * kNsPerSecond);
  recorder_->Step({});
  EXPECT_EQ(Written().size(), 1u);
}

TEST_F(EventsTest, OneThatIsRefusedForGoodIsNotTriedAgain) {
  int tries = 0;
  transport_.fault = [&](const Request&) -> std::optional<ModelTransport::Fault> {
    ++tries;
    return ModelTransport::Fault{Code::kPermissionDenied, false};
  };
  recorder_->Record(Event("p"));
  recorder_->Step({});
  timer_.Advance(600 * kNsPerSecond);
  recorder_->Step({});
  EXPECT_EQ(tries, 1);
  EXPECT_EQ(recorder_->dropped(), 1u);
}

TEST_F(EventsTest, OneThatTheServerForgotIsMadeAgain) {
  recorder_->Record(Event("p"));
  recorder_->Step({});
  const std::string name = StringAt(Written()[0], {"metadata", "name"});
  ASSERT_TRUE(api_.Delete(std::string(kEventsOfA) + "/" + name, {}, {}));
  recorder_->Record(Event("p"));
  timer_.Advance(60 * kNsPerSecond);
  recorder_->Step({});
  ASSERT_EQ(Written().size(), 1u);
  EXPECT_EQ(*At(Written()[0], {"series", "count"}), 2);
}

TEST_F(EventsTest, RunSendsWhatIsLeftAtItsEnd) {
  EventRecorder recorder(api_, {.controller = "example.com/c", .instance = "c-1"}, RealTimer());
  std::jthread runner([&](std::stop_token stop) { recorder.Run(stop); });
  recorder.Record(Event("p"));
  for (int i = 0; i < 4000 && Writes() == 0; ++i) RealTimer().WaitFor(5 * kNsPerMs, {});
  EXPECT_EQ(Writes(), 1u);
  recorder.Record(Event("p"));  // would wait for a refresh
  runner.request_stop();
  runner.join();
  EXPECT_EQ(Writes(), 2u);
  EXPECT_EQ(*At(Written()[0], {"series", "count"}), 2);
}

}  // namespace
}  // namespace tessera::kube
