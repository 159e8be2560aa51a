// Replicas and one Lease in virtual time: never two leaders, whatever their clocks and requests do.
#include "kube/control/leader.h"

#include <gtest/gtest.h>

#include "kube/testing/api_model.h"
#include "kube/testing/fake_timer.h"

namespace tessera::kube {
namespace {

using testing::ApiModel;
using testing::FakeTimer;
using testing::ModelTransport;

// A clock that runs with the others, and shows another time of day.
class ShiftedTimer final : public Timer {
 public:
  ShiftedTimer(FakeTimer& base, std::int64_t wall_micros) : base_(base), wall_(wall_micros) {}
  std::int64_t NowNs() override { return base_.NowNs(); }
  std::int64_t WallMicros() override { return base_.WallMicros() + wall_; }
  bool WaitUntil(std::int64_t until_ns, std::stop_token stop) override {
    return base_.WaitUntil(until_ns, stop);
  }

 private:
  FakeTimer& base_;
  const std::int64_t wall_;
};

struct Replica {
  Replica(ApiModel& model, FakeTimer& base, const std::string& name, std::int64_t wall_micros = 0)
      : transport(model),
        timer(base, wall_micros),
        api(transport, "test"),
        elector(
            api, {.space = "a", .name = "l", .identity = name}, timer,
            [this](bool leader) { told += leader ? '+' : '-'; }, Jitter(name[0])) {}
  // Takes its turn when it is due.
  void Turn() {
    if (timer.NowNs() < due_ns) return;
    due_ns = timer.NowNs() + elector.Step({});
  }

  ModelTransport transport;
  ShiftedTimer timer;
  Api api;
  std::string told;
  LeaderElector elector;
  std::int64_t due_ns = 0;
};

class LeaderTest : public ::testing::Test {
 protected:
  // Both take their turns for that long; never two leaders.
  void Pass(std::int64_t seconds) {
    for (std::int64_t i = 0; i < seconds * 10; ++i) {
      timer_.Advance(100 * kNsPerMs);
      a_.Turn();
      b_.Turn();
      ASSERT_FALSE(a_.elector.IsLeader() && b_.elector.IsLeader());
    }
  }
  void CutOff(Replica& replica) {
    replica.transport.fault = [](const Request&) {
      return ModelTransport::Fault{Code::kUnavailable, false};
    };
  }

  ApiModel model_;
  FakeTimer timer_;
  Replica a_{model_, timer_, "a"};
  Replica b_{model_, timer_, "b", -3'600'000'000};  // an hour behind
};

TEST_F(LeaderTest, OneLeadsAndGoesOnLeading) {
  a_.Turn();
  EXPECT_TRUE(a_.elector.IsLeader());
  Pass(120);
  EXPECT_TRUE(a_.elector.IsLeader());
  EXPECT_FALSE(b_.elector.IsLeader());
  EXPECT_EQ(a_.told, "+");
  EXPECT_EQ(b_.told, "");
}

TEST_F(LeaderTest, AnotherTakesOverFromOneThatIsCutOff) {
  a_.Turn();
  Pass(10);
  CutOff(a_);
  Pass(30);
  EXPECT_EQ(a_.told, "+-");
  EXPECT_TRUE(b_.elector.IsLeader());
  EXPECT_EQ(b_.elector.Term(), a_.elector.Term() + 1);
  a_.transport.fault = nullptr;
  Pass(60);
  EXPECT_EQ(a_.told, "+-");  // it waits for its turn
  EXPECT_TRUE(b_.elector.IsLeader());
}

TEST_F(LeaderTest, ItLeadsNoLongerThanItsLeaseEvenWhenItsThreadHangs) {
  a_.Turn();
  EXPECT_TRUE(a_.elector.IsLeader());
  timer_.Advance(10 * kNsPerSecond - 1);
  EXPECT_TRUE(a_.elector.IsLeader());
  timer_.Advance(1);
  EXPECT_FALSE(a_.elector.IsLeader());
}

TEST_F(LeaderTest, ARenewalThatIsGrantedTooLateIsNone) {
  a_.transport.fault = [&](const Request& request) -> std::optional<ModelTransport::Fault> {
    if (request.method == "POST") timer_.Advance(11 * kNsPerSecond);
    return std::nullopt;
  };
  a_.Turn();
  EXPECT_FALSE(a_.elector.IsLeader());
  EXPECT_EQ(a_.told, "");
}

TEST_F(LeaderTest, AnAnswerThatIsLostIsNoLossOfTheLease) {
  a_.Turn();
  int lost = 0;
  a_.transport.fault = [&](const Request& request) -> std::optional<ModelTransport::Fault> {
    if (request.method != "PATCH" || ++lost % 2 == 0) return std::nullopt;
    return ModelTransport::Fault{Code::kDataLoss, true};  // stored, but we do not hear it
  };
  Pass(60);
  EXPECT_GT(lost, 10);
  EXPECT_EQ(a_.told, "+");
}

TEST_F(LeaderTest, AFastOrSlowTimeOfDayChangesNothing) {
  b_.Turn();  // its times lie an hour in the past
  Pass(60);
  EXPECT_TRUE(b_.elector.IsLeader());
  timer_.StepWall(7'200'000'000);
  Pass(60);
  timer_.StepWall(-7'200'000'000);
  Pass(60);
  EXPECT_EQ(b_.told, "+");
  EXPECT_EQ(a_.told, "");
}

TEST_F(LeaderTest, ReleasesSoThatAnotherNeedNotWait) {
  a_.Turn();
  Pass(5);
  a_.elector.Release();
  EXPECT_EQ(a_.told, "+-");
  a_.due_ns = INT64_MAX;
  Pass(5);
  EXPECT_TRUE(b_.elector.IsLeader());
}

TEST_F(LeaderTest, RunGivesItUpAtTheEnd) {
  std::stop_source stop;
  int waits = 0;
  timer_.on_wait = [&] {
    if (++waits == 3) stop.request_stop();
  };
  a_.elector.Run(stop.get_token());
  EXPECT_EQ(a_.told, "+-");
  const std::string lease =
      a_.api.Get("/apis/coordination.k8s.io/v1/namespaces/a/leases/l", {}).value();
  EXPECT_NE(lease.find(R"("holderIdentity":"")"), std::string::npos) << lease;
}

TEST_F(LeaderTest, KeepsWhatOthersWroteOnTheLease) {
  a_.Turn();
  ASSERT_TRUE(b_.api.Patch("/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
                           "application/merge-patch+json",
                           R"({"metadata":{"labels":{"team":"x"}}})", {}));
  Pass(20);
  EXPECT_TRUE(a_.elector.IsLeader());
  EXPECT_NE(a_.api.Get("/apis/coordination.k8s.io/v1/namespaces/a/leases/l", {})->find("team"),
            std::string::npos);
}

TEST_F(LeaderTest, NeverTwoWhateverFails) {
  Jitter random(11);
  for (Replica* replica : {&a_, &b_}) {
    replica->transport.fault = [&](const Request&) -> std::optional<ModelTransport::Fault> {
      timer_.Advance(random.Between(0, 1500) * kNsPerMs);
      const std::int64_t kind = random.Between(0, 10);
      if (kind < 3) return ModelTransport::Fault{Code::kUnavailable, false};
      if (kind < 5) return ModelTransport::Fault{Code::kDataLoss, true};
      return std::nullopt;
    };
  }
  Pass(3000);
  EXPECT_GT(a_.told.size() + b_.told.size(), 4u);  // it did change hands
}

TEST(LeaderOptionsTest, RefusesTimesThatCannotBeSafe) {
  const LeaderOptions good{.space = "a", .name = "l", .identity = "i"};
  EXPECT_TRUE(CheckLeaderOptions(good));
  LeaderOptions bad = good;
  bad.renew_ns = bad.lease_ns;
  EXPECT_FALSE(CheckLeaderOptions(bad));
  bad = good;
  bad.retry_ns = bad.renew_ns / 6 * 5 + kNsPerSecond;
  EXPECT_FALSE(CheckLeaderOptions(bad));
  bad = good;
  bad.lease_ns += 1;
  EXPECT_FALSE(CheckLeaderOptions(bad));
  bad = good;
  bad.name = "a/b";
  EXPECT_FALSE(CheckLeaderOptions(bad));
  bad = good;
  bad.identity = "";
  EXPECT_FALSE(CheckLeaderOptions(bad));
}

TEST(LeaseRecordTest, ComesBackAsItWent) {
  const LeaseRecord record{"me \"x\"", 15, 1'796'048'530'000'001, 1'796'048'530'000'002, 3};
  const auto lease = ReadLease(R"({"metadata":{"name":"l","resourceVersion":"5"},"spec":)" +
                               LeaseSpec(record) + "}");
  ASSERT_TRUE(lease) << lease.error().message;
  EXPECT_EQ(lease->record, record);
  EXPECT_EQ(lease->resource_version, "5");
  EXPECT_FALSE(ReadLease("{}"));
  EXPECT_EQ(ReadLease(R"({"spec":{"renewTime":"soon"}})").error().message,
            "spec.renewTime: not an RFC 3339 time");
}

}  // namespace
}  // namespace tessera::kube
