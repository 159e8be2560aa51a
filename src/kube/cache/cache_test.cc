// Caches over a real socket, against a server that misbehaves: whatever happens, in the end they
// hold what the server holds, and their handlers were told so.
#include "kube/cache/cache.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "kube/http/connect.h"
#include "kube/testing/fake_api.h"
#include "kube/testing/temporary_folder.h"

namespace tessera::kube {
namespace {

using testing::FakeApi;
using testing::Fault;

constexpr const char* kPath = "/api/v1/pods";

struct Pod : Object {
  std::string node;
};

Result<std::shared_ptr<Pod>> ReadPod(JsonValue& value) {
  auto pod = std::make_shared<Pod>();
  const Status done =
      ReadInto(value, pod->meta, [&](std::string_view key, JsonValue& field) -> Status {
        if (key != "spec") return {};
        return field.Object([&](std::string_view name, JsonValue& inner) -> Status {
          return name == "nodeName" ? Into(inner.String(), pod->node) : Status();
        });
      });
  if (!done) return Fail(done.error());
  return pod;
}

// Until `condition`, for at most 20 s.
bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000 && !condition(); ++i) RealTimer().WaitFor(5 * kNsPerMs, {});
  return condition();
}

// A cache, and what its handlers make of what they are told.
class Follower {
 public:
  explicit Follower(FakeApi& api, ClientConfig config = {}, std::int64_t silence_ns = 0) {
    config.server = api.url();
    auto transport = Connect(config, {.session = {.requests_per_second = 0}});
    EXPECT_TRUE(transport) << transport.error().message;
    transport_ = std::move(*transport);
    cache_ = std::make_unique<Cache<Pod>>(
        *transport_,
        ReflectorOptions{.path = kPath,
                         .page_size = 3,
                         .silence_ns = silence_ns,
                         .backoff = {.first_ns = kNsPerMs, .most_ns = 20 * kNsPerMs}},
        ReadPod, RealTimer());
    cache_->AddIndex("node", [](const Pod& pod) { return std::vector{pod.node}; });
    cache_->AddHandler([this](const Cache<Pod>::Ptr& before, const Cache<Pod>::Ptr& after) {
      std::lock_guard lock(mutex_);
      const std::string key = KeyOf((after ? after : before)->meta);
      const auto known = told_.find(key);
      consistent_ = consistent_ && (before != nullptr) == (known != told_.end()) &&
                    (!before || known->second == before->meta.uid);
      if (after) {
        told_[key] = after->meta.uid;
      } else {
        told_.erase(key);
      }
    });
    cache_->Start();
  }
  ~Follower() { cache_.reset(); }

  Cache<Pod>& cache() { return *cache_; }
  bool Synced() { return cache_->WaitSynced(RealTimer().NowNs() + 20 * kNsPerSecond, {}); }
  // The cache, its handlers and the server agree.
  bool Agrees(FakeApi& api) {
    std::string body = api.model().Handle("GET", kPath, "", "").body;
    const auto list = ReadList(body, ReadObjectMeta);
    std::lock_guard lock(mutex_);
    if (!list || list->items.size() != cache_->size() || told_.size() != cache_->size()) {
      return false;
    }
    for (const ObjectPtr& item : list->items) {
      const auto pod = cache_->Get(KeyOf(item->meta));
      if (!pod || pod->meta != item->meta || told_[KeyOf(item->meta)] != item->meta.uid) {
        return false;
      }
    }
    return consistent_;
  }

 private:
  std::unique_ptr<Transport> transport_;
  std::mutex mutex_;
  std::map<std::string, std::string> told_;  // guarded by mutex_, as the next
  bool consistent_ = true;
  std::unique_ptr<Cache<Pod>> cache_;
};

// Creates, changes or deletes a pod as another client would.
void Touch(FakeApi& api, const std::string& name, const std::string& node) {
  const std::string pods = "/api/v1/namespaces/a/pods";
  const std::string body =
      R"({"metadata":{"name":")" + name + R"("},"spec":{"nodeName":")" + node + R"("}})";
  if (api.model().Handle("POST", pods, body, "").status == 409) {
    api.model().Handle("PATCH", pods + "/" + name, body, "application/merge-patch+json");
  }
}
void Delete(FakeApi& api, const std::string& name) {
  api.model().Handle("DELETE", "/api/v1/namespaces/a/pods/" + name, "", "");
}

TEST(CacheOverSockets, FollowsAndFindsByIndex) {
  FakeApi api;
  Touch(api, "p", "n1");
  Follower follower(api);
  ASSERT_TRUE(follower.Synced());
  EXPECT_EQ(follower.cache().Get("a/p")->node, "n1");
  Touch(api, "p", "n2");
  Touch(api, "q", "n2");
  EXPECT_TRUE(Eventually([&] { return follower.cache().Find("node", "n2").size() == 2; }));
  EXPECT_TRUE(follower.cache().Find("node", "n1").empty());
  Delete(api, "p");
  EXPECT_TRUE(Eventually([&] { return follower.Agrees(api); }));
  EXPECT_EQ(api.lists(), 0);  // the list came as a stream
  EXPECT_FALSE(follower.cache().Stale());
}

TEST(CacheOverSockets, PagesWhereTheServerHasNoStreamedLists) {
  FakeApi api(/*streaming_lists=*/false);
  for (int i = 0; i < 7; ++i) Touch(api, "p" + std::to_string(i), "n");
  Follower follower(api);
  ASSERT_TRUE(follower.Synced());
  EXPECT_EQ(follower.cache().size(), 7u);
  EXPECT_EQ(api.lists(), 3);
  Delete(api, "p3");
  EXPECT_TRUE(Eventually([&] { return follower.Agrees(api); }));
}

class EveryFault : public ::testing::TestWithParam<Fault> {};

TEST_P(EveryFault, IsLivedThrough) {
  FakeApi api;
  Touch(api, "p", "n1");
  api.Next(GetParam(), /*watch=*/true);  // the list
  Follower follower(api, {}, 300 * kNsPerMs);
  ASSERT_TRUE(follower.Synced());
  for (int i = 0; i < 2; ++i) {
    api.Next(GetParam(), /*watch=*/true);
    api.EndWatches();  // the next one has the fault
    Touch(api, "p", "n" + std::to_string(i));
    Touch(api, "q" + std::to_string(i), "n");
    ASSERT_TRUE(Eventually([&] { return api.faults_left() == 0 && follower.Agrees(api); })) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(CacheOverSockets, EveryFault,
                         ::testing::Values(Fault::kGone, Fault::kHalfLine, Fault::kTooMany,
                                           Fault::kSilent, Fault::kReset, Fault::kUnavailable));

TEST(CacheOverSockets, ListsAgainWhenHistoryIsGoneOrTheServerFellBack) {
  FakeApi api;
  Touch(api, "p", "n1");
  Follower follower(api);
  ASSERT_TRUE(follower.Synced());
  Touch(api, "q", "n1");
  api.model().Compact();  // while nobody watches the change may be lost
  api.EndWatches();
  ASSERT_TRUE(Eventually([&] { return follower.Agrees(api); }));
  api.model().Restore(50);  // a backup: versions begin again, below what we saw
  api.EndWatches();
  Touch(api, "r", "n1");
  EXPECT_TRUE(Eventually([&] { return follower.Agrees(api); }));
}

TEST(CacheOverSockets, ATokenIsRotatedUnderIt) {
  const testing::TemporaryFolder folder;
  FakeApi api;
  api.AcceptToken("one");
  ClientConfig config;
  config.credential.token_file = folder.Write("token", "one");
  Follower follower(api, config);
  ASSERT_TRUE(follower.Synced());
  folder.Write("token", "two");
  api.AcceptToken("two");
  api.EndWatches();
  Touch(api, "p", "n");
  EXPECT_TRUE(Eventually([&] { return follower.Agrees(api); }));
}

TEST(CacheOverSockets, ASlowListIsAList) {
  FakeApi api(/*streaming_lists=*/false);
  for (int i = 0; i < 3; ++i) Touch(api, "p" + std::to_string(i), "n");
  api.Next(Fault::kSlow, /*watch=*/false);
  Follower follower(api);
  ASSERT_TRUE(follower.Synced());
  EXPECT_TRUE(Eventually([&] { return follower.Agrees(api); }));
}

// Writers, faults, ends and compactions at once.
TEST(CacheOverSockets, AgreesAfterAStorm) {
  for (const bool streams : {true, false}) {
    FakeApi api(streams);
    Follower follower(api, {}, 200 * kNsPerMs);
    Jitter random(streams ? 1 : 2);
    const Fault faults[] = {Fault::kGone, Fault::kHalfLine, Fault::kReset, Fault::kSilent,
                            Fault::kUnavailable};
    for (int i = 0; i < 400; ++i) {
      const std::string name = "p" + std::to_string(random.Between(0, 12));
      if (random.Between(0, 3) == 0) {
        Delete(api, name);
      } else {
        Touch(api, name, "n" + std::to_string(random.Between(0, 3)));
      }
      if (i % 25 == 0) api.Next(faults[random.Between(0, 5)], /*watch=*/true);
      if (i % 40 == 0) api.EndWatches();
      if (i % 90 == 0) api.model().Compact();
      if (i % 10 == 0) RealTimer().WaitFor(2 * kNsPerMs, {});
    }
    EXPECT_TRUE(Eventually([&] { return follower.Agrees(api); })) << streams;
  }
}

TEST(CacheOverSockets, EndsWhileItWatches) {
  FakeApi api;
  auto follower = std::make_unique<Follower>(api);
  ASSERT_TRUE(follower->Synced());
  ASSERT_TRUE(Eventually([&] { return api.watches() == 1; }));
  follower.reset();
  EXPECT_TRUE(Eventually([&] { return api.watches() == 0; }));
}

}  // namespace
}  // namespace tessera::kube
