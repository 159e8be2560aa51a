// Lists and watches against scripted answers, in a time that passes only when somebody waits.
#include "kube/cache/reflector.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kube/testing/scripted_transport.h"

namespace tessera::kube {
namespace {

using testing::Answer;
using testing::Broken;
using testing::Lines;

std::string Item(const std::string& name, int version) {
  return R"({"metadata":{"name":")" + name + R"(","uid":"u-)" + name + R"(","resourceVersion":")" +
         std::to_string(version) + R"("}})";
}

std::string Page(int version, const std::vector<std::string>& items, const std::string& next = "") {
  std::string text = R"({"metadata":{"resourceVersion":")" + std::to_string(version) +
                     R"(","continue":")" + next + R"("},"items":[)";
  for (std::size_t i = 0; i < items.size(); ++i) text += (i > 0 ? "," : "") + items[i];
  return text + "]}";
}

std::string Event(const std::string& type, const std::string& name, int version) {
  return R"({"type":")" + type + R"(","object":)" + Item(name, version) + "}";
}

std::string Bookmark(int version, bool ends_list = false) {
  return R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":")" +
         std::to_string(version) + "\"" +
         (ends_list ? R"(,"annotations":{"k8s.io/initial-events-end":"true"})" : "") + "}}}";
}

const char* const kGone =
    R"({"type":"ERROR","object":{"kind":"Status","message":"too old","reason":"Expired","code":410}})";

class ReflectorTest : public ::testing::Test {
 protected:
  ReflectorTest() { Make({.stream_lists = false}); }

  void Make(ReflectorOptions options) {
    options.path = "/api/v1/pods";
    wire_ = std::make_unique<testing::ScriptedTransport>(timer_);
    store_ = std::make_unique<Store>();
    store_->AddHandler([this](const Change& change) {
      const ObjectPtr& any = change.after ? change.after : change.before;
      told_ += (!change.after ? "-" : change.before ? "~" : "+") + any->meta.name + " ";
    });
    reflector_ =
        std::make_unique<Reflector>(*wire_, options, ReadObjectMeta, *store_, timer_, Jitter(5));
  }
  void TearDown() override { EXPECT_EQ(wire_->left(), 0u); }
  void Add(Answer answer) { wire_->Add(std::move(answer)); }
  void AddList(const std::string& body) { Add(testing::Status(200, body)); }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) reflector_->Step({});
  }
  // The query parameter of the request before the last by `back`.
  std::string Asked(const std::string& name, std::size_t back = 0) const {
    const std::string& path = wire_->requests[wire_->requests.size() - 1 - back].path;
    const std::size_t at = path.find(name + "=");
    if (at == std::string::npos) return "(none)";
    const std::size_t from = at + name.size() + 1;
    return path.substr(from, path.find('&', from) - from);
  }
  // How long it waited before the last request.
  std::int64_t Waited() const {
    const auto& times = wire_->times_ns;
    return times[times.size() - 1] - times[times.size() - 2];
  }
  std::string Told() { return std::exchange(told_, ""); }

  testing::FakeTimer timer_;
  std::unique_ptr<testing::ScriptedTransport> wire_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Reflector> reflector_;
  std::string told_;
};

TEST_F(ReflectorTest, ListsThenWatchesFromThere) {
  AddList(Page(10, {Item("a", 1), Item("b", 2)}));
  Add(Lines({Event("MODIFIED", "a", 11), Event("DELETED", "b", 12), Event("ADDED", "c", 13)}));
  EXPECT_FALSE(reflector_->Synced());
  Steps(1);
  EXPECT_TRUE(reflector_->Synced());
  EXPECT_EQ(Asked("limit"), "500");
  Steps(1);
  EXPECT_EQ(Asked("resourceVersion"), "10");
  EXPECT_EQ(Asked("watch"), "1");
  EXPECT_EQ(Asked("allowWatchBookmarks"), "true");
  EXPECT_GE(std::stoi(Asked("timeoutSeconds")), 300);
  EXPECT_LT(std::stoi(Asked("timeoutSeconds")), 600);
  EXPECT_EQ(wire_->requests[1].idle_ns, (std::stoi(Asked("timeoutSeconds")) + 30) * kNsPerSecond);
  EXPECT_EQ(Told(), "+a +b ~a -b +c ");
  EXPECT_EQ(reflector_->State().version, "13");
}

TEST_F(ReflectorTest, ReadsAllPagesBeforeItIsSynced) {
  AddList(Page(10, {Item("a", 1)}, "tok/en="));
  AddList(Page(10, {Item("b", 2)}));
  Steps(1);
  EXPECT_EQ(Asked("continue"), "tok%2Fen%3D");
  EXPECT_EQ(Told(), "+a +b ");
}

TEST_F(ReflectorTest, AWatchThatEndsGoesOnAtOnceFromTheLastVersion) {
  AddList(Page(10, {}));
  Add(Lines({Event("ADDED", "a", 11), Bookmark(20)}));
  Add(Lines({Event("ADDED", "b", 21)}));
  Steps(3);
  EXPECT_EQ(Asked("resourceVersion"), "20");
  EXPECT_EQ(Waited(), 0);
  EXPECT_EQ(reflector_->State().lists, 1u);
}

TEST_F(ReflectorTest, AWatchThatEndsEmptyAtOnceIsNotHammered) {
  AddList(Page(10, {}));
  for (int i = 0; i < 3; ++i) Add(Lines({}));
  Steps(4);
  EXPECT_GE(Waited(), 800 * kNsPerMs);
  EXPECT_EQ(reflector_->State().lists, 1u);
}

TEST_F(ReflectorTest, GoneMeansANewListThatTellsWhatWasMissed) {
  AddList(Page(10, {Item("a", 1), Item("b", 2)}));
  Answer gone = Lines({kGone});
  gone.meanwhile = [&] { timer_.Advance(60 * kNsPerSecond); };
  Add(gone);
  AddList(Page(50, {Item("b", 40), Item("c", 41)}));
  Steps(2);
  Told();
  Steps(1);
  EXPECT_EQ(Told(), "-a ~b +c ");
  EXPECT_EQ(Waited(), 60 * kNsPerSecond);  // all of it in the watch
}

TEST_F(ReflectorTest, GoneAsAnAnswerIsTheSameAndARowOfThemWaits) {
  AddList(Page(10, {}));
  Add(testing::Status(410, R"({"reason":"Expired","code":410})"));
  AddList(Page(11, {}));
  Add(testing::Status(410, R"({"reason":"Expired","code":410})"));
  AddList(Page(12, {}));
  Steps(5);
  EXPECT_GE(Waited(), 400 * kNsPerMs);
  EXPECT_EQ(reflector_->State().lists, 3u);
}

// The API server behind us has not seen what another one told us: after a failover, or a restore.
TEST_F(ReflectorTest, AVersionAheadOfTheServerMeansANewList) {
  AddList(Page(100, {Item("a", 99)}));
  Add(testing::Status(504, R"({"code":504,"message":"Too large resource version: 100, current: 7",
    "details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}})"));
  AddList(Page(7, {Item("b", 6)}));
  Steps(3);
  EXPECT_EQ(Asked("resourceVersion"), "(none)");
  EXPECT_EQ(Told(), "+a -a +b ");
}

// After a restored backup a watch from our version would leave out all that is below it.
TEST_F(ReflectorTest, AVersionThatGoesBackMeansANewList) {
  AddList(Page(100, {Item("a", 99)}));
  Add(Lines({Event("ADDED", "b", 101), Bookmark(20), Event("ADDED", "c", 21)}));
  AddList(Page(21, {Item("a", 99), Item("c", 21)}));
  Steps(3);
  EXPECT_EQ(Asked("watch"), "(none)");
  EXPECT_EQ(Told(), "+a +b -b +c ");
  Add(Lines({Event("ADDED", "d", 100)}));  // more digits are no step back
  Steps(1);
  EXPECT_EQ(Told(), "+d ");
}

TEST_F(ReflectorTest, AServerThatFailsAgainAndAgainIsAskedForAList) {
  AddList(Page(10, {}));
  for (int i = 0; i < 5; ++i) Add(testing::Status(500, R"({"reason":"InternalError"})"));
  AddList(Page(11, {}));
  Steps(7);
  EXPECT_EQ(Asked("limit"), "500");
  EXPECT_EQ(reflector_->State().watches, 5u);
}

TEST_F(ReflectorTest, TooManyRequestsWaitsAndKeepsTheVersion) {
  AddList(Page(10, {}));
  Add(testing::Status(429, "", 45 * kNsPerSecond));
  Add(Lines({Event("ADDED", "a", 11)}));
  Steps(3);
  EXPECT_EQ(Waited(), 45 * kNsPerSecond);
  EXPECT_EQ(Asked("resourceVersion"), "10");
}

TEST_F(ReflectorTest, ABrokenConnectionKeepsWhatWasSeen) {
  AddList(Page(10, {}));
  Answer half = Lines({Event("ADDED", "a", 11)});
  half.response = Fail(Code::kDataLoss, "half a line");
  Add(half);
  Add(Broken(Code::kUnavailable));
  Add(Lines({Event("ADDED", "b", 12)}));
  Steps(4);
  EXPECT_EQ(Asked("resourceVersion"), "11");
  EXPECT_EQ(Told(), "+a +b ");
  EXPECT_EQ(reflector_->State().lists, 1u);
}

TEST_F(ReflectorTest, BackOffGrowsAndIsBounded) {
  AddList(Page(10, {}));
  for (int i = 0; i < 12; ++i) Add(Broken(Code::kUnavailable));
  Steps(13);
  EXPECT_GE(Waited(), 15 * kNsPerSecond);
  EXPECT_LE(Waited(), 30 * kNsPerSecond);
  EXPECT_EQ(reflector_->State().last_error, "scripted");
}

TEST_F(ReflectorTest, WhatCannotBeReadIsListedAgainAndNotSkipped) {
  AddList(Page(10, {}));
  Add(Lines({Event("ADDED", "a", 11), R"({"type":"ADDED","object":{"metadata":{"name":7}}})",
             Event("ADDED", "b", 13)}));
  AddList(Page(13, {Item("a", 11), Item("b", 13)}));
  Steps(2);
  EXPECT_EQ(reflector_->State().last_error, "watch: object.metadata.name: a string is needed");
  Steps(1);
  EXPECT_EQ(Told(), "+a +b ");
}

TEST_F(ReflectorTest, AListThatCannotBeReadIsNoSync) {
  AddList(Page(10, {Item("a", 1), R"({"metadata":{"name":[]}})"}));
  AddList("<html>");
  AddList(R"({"metadata":{}})");
  Steps(3);
  EXPECT_FALSE(reflector_->Synced());
  EXPECT_EQ(store_->size(), 0u);
  EXPECT_GE(Waited(), 800 * kNsPerMs);
}

TEST_F(ReflectorTest, PagesThatExpireAreReadAllAtOnce) {
  AddList(Page(10, {Item("a", 1)}, "next"));
  Add(testing::Status(410, R"({"reason":"Expired","code":410})"));
  AddList(Page(12, {Item("a", 1), Item("b", 2)}));
  Steps(2);
  EXPECT_EQ(Asked("limit"), "(none)");
  EXPECT_EQ(Told(), "+a +b ");
}

TEST_F(ReflectorTest, BoundsWhatItHolds) {
  Make({.stream_lists = false, .max_objects = 2});
  AddList(Page(10, {Item("a", 1), Item("b", 2), Item("c", 3)}));
  Steps(1);
  EXPECT_FALSE(reflector_->Synced());
  EXPECT_EQ(reflector_->State().last_error, "more than 2 objects");
  AddList(Page(10, {Item("a", 1), Item("b", 2)}));
  Add(Lines({Event("MODIFIED", "a", 11), Event("ADDED", "c", 12)}));
  Steps(2);
  EXPECT_EQ(store_->size(), 2u);
  EXPECT_EQ(reflector_->State().last_error, "more than 2 objects");
}

TEST_F(ReflectorTest, StreamsItsListWhereTheServerCan) {
  Make({});
  Add(Lines({Event("ADDED", "a", 1), Event("ADDED", "b", 2), Event("ADDED", "c", 3),
             Event("DELETED", "b", 9), Bookmark(10, true), Event("ADDED", "d", 11)}));
  Add(Lines({Event("ADDED", "e", 12)}));
  reflector_->Step({});
  EXPECT_EQ(Asked("sendInitialEvents"), "true");
  EXPECT_EQ(Asked("resourceVersionMatch"), "NotOlderThan");
  EXPECT_EQ(Asked("resourceVersion"), "(none)");
  EXPECT_TRUE(reflector_->Synced());
  EXPECT_EQ(store_->size(), 3u);
  EXPECT_EQ(Told().substr(6), "+d ");
  Steps(1);
  EXPECT_EQ(Asked("resourceVersion"), "11");
}

TEST_F(ReflectorTest, FallsBackToPagesForGoodWhereItCannot) {
  for (const Answer& refusal :
       {testing::Status(422, R"({"reason":"Invalid","code":422})"),
        Lines({R"({"type":"ERROR","object":{"reason":"Invalid","code":422}})"})}) {
    Make({});
    Add(refusal);
    AddList(Page(10, {Item("a", 1)}));
    Steps(2);
    EXPECT_EQ(Waited(), 0);
    EXPECT_EQ(Asked("limit"), "500");
    EXPECT_TRUE(reflector_->Synced());
    Add(Lines({kGone}));
    AddList(Page(20, {Item("a", 1)}));
    Steps(2);
    EXPECT_EQ(Asked("limit"), "500");
    EXPECT_EQ(wire_->left(), 0u);
  }
}

TEST_F(ReflectorTest, AStreamedListThatBreaksIsPagedOnceThenTriedAgain) {
  Make({});
  Add(Lines({Event("ADDED", "a", 1)}));  // ends before its last event
  Add(Broken(Code::kDataLoss));
  Add(Lines({Bookmark(10, true)}));
  Steps(3);
  EXPECT_EQ(Asked("sendInitialEvents", 1), "(none)");
  EXPECT_EQ(Asked("sendInitialEvents"), "true");
  EXPECT_TRUE(reflector_->Synced());
  EXPECT_EQ(Told(), "");
}

TEST_F(ReflectorTest, ASilentWatchIsGivenUpAndTakenUpAgain) {
  Make({.stream_lists = false, .silence_ns = 90 * kNsPerSecond});
  AddList(Page(10, {}));
  Answer silent = Lines({Bookmark(12)});
  silent.silent = true;
  Add(silent);
  Add(Lines({Event("ADDED", "a", 13)}));
  Steps(3);
  EXPECT_EQ(wire_->requests[1].idle_ns, 90 * kNsPerSecond);
  EXPECT_EQ(Asked("resourceVersion"), "12");
  EXPECT_FALSE(reflector_->Stale());
}

TEST_F(ReflectorTest, IsStaleWhenItWasOutOfTouchForLong) {
  Make({.stream_lists = false, .stale_after_ns = 20 * kNsPerSecond});
  EXPECT_FALSE(reflector_->Stale());  // not synced is another thing
  AddList(Page(10, {}));
  Steps(1);
  Answer quiet = Lines({Bookmark(11)});
  quiet.takes_ns = 200 * kNsPerSecond;  // open and quiet is in touch
  quiet.meanwhile = [&] { EXPECT_FALSE(reflector_->Stale()); };
  Add(quiet);
  Steps(1);
  EXPECT_FALSE(reflector_->Stale());
  int failures = 0;
  while (!reflector_->Stale() && failures < 100) {
    Add(Broken(Code::kUnavailable));
    Steps(1);
    ++failures;
  }
  EXPECT_GE(failures, 4);  // half of 0.8, 1.6, 3.2, ... s make 20 s
  EXPECT_LE(failures, 8);
  Add(Lines({Event("ADDED", "a", 12)}));
  Steps(1);
  EXPECT_FALSE(reflector_->Stale());
  EXPECT_TRUE(reflector_->Synced());
}

TEST_F(ReflectorTest, SendsItsSelectors) {
  Make({.label_selector = "a=b", .field_selector = "spec.nodeName=n", .stream_lists = false});
  AddList(Page(10, {}));
  Add(Lines({Bookmark(11)}));
  Steps(2);
  for (std::size_t back : {0u, 1u}) {
    EXPECT_EQ(Asked("labelSelector", back), "a%3Db");
    EXPECT_EQ(Asked("fieldSelector", back), "spec.nodeName%3Dn");
  }
}

TEST_F(ReflectorTest, AStopEndsItsWaits) {
  std::stop_source stop;
  stop.request_stop();
  reflector_->Run(stop.get_token());
  EXPECT_TRUE(wire_->requests.empty());
}

}  // namespace
}  // namespace tessera::kube
