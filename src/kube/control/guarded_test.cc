// Changes among others' changes: none lost, none made to the wrong object.
#include "kube/control/guarded.h"

#include <gtest/gtest.h>

#include "kube/testing/api_model.h"
#include "kube/testing/fake_timer.h"
#include "kube/testing/scripted_transport.h"

namespace tessera::kube {
namespace {

constexpr const char* kPods = "/api/v1/namespaces/a/pods";
constexpr const char* kPod = "/api/v1/namespaces/a/pods/p";

class GuardedTest : public ::testing::Test {
 protected:
  GuardedTest() { uid_ = Make(); }
  std::string Make() {
    std::string body = api_.Create(kPods, R"({"metadata":{"name":"p"}})", {}).value();
    return Read(body).uid;
  }
  static ObjectMeta Read(std::string body) {
    ObjectMeta meta;
    EXPECT_TRUE(ReadJson(body, [&](JsonValue& root) {
      return ReadInto(root, meta, [](std::string_view, JsonValue&) -> Status { return {}; });
    }));
    return meta;
  }
  ObjectMeta Now() { return Read(api_.Get(kPod, {}).value()); }
  void Others(const std::string& body) { ASSERT_TRUE(api_.Patch(kPod, kMergePatchType, body, {})); }
  // Adds one to the annotation "n".
  GuardedChange Increment() {
    return {.path = kPod, .uid = uid_, .change = [this](const ObjectMeta& now) {
              ++asked_;
              if (meanwhile_) meanwhile_();
              const std::string* n = Find(now.annotations, "n");
              MetaChange change;
              change.annotations["n"] = std::to_string((n ? std::stoi(*n) : 0) + 1);
              return std::optional(change);
            }};
  }

  testing::ApiModel model_;
  testing::ModelTransport transport_{model_};
  testing::FakeTimer timer_;
  Api api_{transport_, "test"};
  std::string uid_;
  int asked_ = 0;
  std::function<void()> meanwhile_;
};

TEST_F(GuardedTest, ChangesAndReturnsWhatIsThere) {
  const auto changed = ChangeGuarded(api_, Increment(), timer_, {});
  ASSERT_TRUE(changed) << changed.error().message;
  EXPECT_EQ(*Find(changed->annotations, "n"), "1");
  EXPECT_EQ(*changed, Now());
}

TEST_F(GuardedTest, SeesOthersChangesAfterAConflict) {
  meanwhile_ = [this] {
    if (asked_ <= 2)
      Others(R"({"metadata":{"annotations":{"n":")" + std::to_string(asked_ * 10) + "\"}}}");
  };
  const auto changed = ChangeGuarded(api_, Increment(), timer_, {});
  ASSERT_TRUE(changed) << changed.error().message;
  EXPECT_EQ(*Find(changed->annotations, "n"), "21");
  EXPECT_EQ(asked_, 3);
}

TEST_F(GuardedTest, AnOldViewIsRefusedAndReadAgain) {
  GuardedChange change = Increment();
  change.seen = Now();
  Others(R"({"metadata":{"annotations":{"n":"5"}}})");
  EXPECT_EQ(*Find(ChangeGuarded(api_, change, timer_, {})->annotations, "n"), "6");
  const std::size_t before = model_.writes();
  change.seen = Now();
  EXPECT_TRUE(ChangeGuarded(api_, change, timer_, {}));
  EXPECT_EQ(model_.writes(), before + 1);
  EXPECT_EQ(asked_, 3);
}

TEST_F(GuardedTest, LeavesAnotherObjectOfThatNameAlone) {
  meanwhile_ = [this] {
    if (asked_ > 1) return;
    ASSERT_TRUE(api_.Delete(kPod, {}, {}));
    Make();
  };
  EXPECT_EQ(ChangeGuarded(api_, Increment(), timer_, {}).error().code, Code::kNotFound);
  EXPECT_TRUE(Now().annotations.empty());
  ASSERT_TRUE(api_.Delete(kPod, {}, {}));
  EXPECT_EQ(ChangeGuarded(api_, Increment(), timer_, {}).error().code, Code::kNotFound);
}

TEST_F(GuardedTest, GivesUpAfterItsTries) {
  meanwhile_ = [this] {
    Others(R"({"metadata":{"annotations":{"x":")" + std::to_string(asked_) + "\"}}}");
  };
  EXPECT_EQ(ChangeGuarded(api_, Increment(), timer_, {}).error().code, Code::kAborted);
  EXPECT_EQ(asked_, 5);
}

TEST_F(GuardedTest, NothingToDoWritesNothing) {
  const std::size_t before = model_.writes();
  GuardedChange change = Increment();
  change.change = [](const ObjectMeta&) -> Result<std::optional<MetaChange>> {
    return std::nullopt;
  };
  EXPECT_EQ(*ChangeGuarded(api_, change, timer_, {}), Now());
  change.change = [](const ObjectMeta&) -> Result<std::optional<MetaChange>> {
    return Fail(Code::kInvalidArgument, "not that one");
  };
  EXPECT_EQ(ChangeGuarded(api_, change, timer_, {}).error().message, "not that one");
  EXPECT_EQ(model_.writes(), before);
}

// The real API server calls a uid that does not match an invalid change, not a conflict.
TEST(GuardedInvalid, IsLookedAtAgain) {
  testing::FakeTimer timer;
  testing::ScriptedTransport wire(timer);
  Api api(wire, "test");
  const auto pod = [](const char* uid) {
    return testing::Status(200, R"({"metadata":{"name":"p","resourceVersion":"1","uid":")" +
                                    std::string(uid) + "\"}}");
  };
  for (const auto& [now, code] :
       {std::pair("w", Code::kNotFound), std::pair("u", Code::kInvalidArgument)}) {
    wire.Add(pod("u"));
    wire.Add(testing::Status(422, R"({"reason":"Invalid","code":422})"));
    wire.Add(pod(now));
    const GuardedChange change{.path = "/p", .uid = "u", .change = [](const ObjectMeta&) {
                                 return std::optional(MetaChange{.labels = {{"a", "b"}}});
                               }};
    EXPECT_EQ(ChangeGuarded(api, change, timer, {}).error().code, code);
    EXPECT_EQ(wire.left(), 0u);
  }
  EXPECT_EQ(wire.requests[1].body,
            R"({"metadata":{"uid":"u","resourceVersion":"1","labels":{"a":"b"}}})");
}

}  // namespace
}  // namespace tessera::kube
