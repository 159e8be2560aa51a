// The store: who is told what, in which order, and that its indexes are what its objects say.
#include "kube/cache/store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kube/pace/backoff.h"

namespace tessera::kube {
namespace {

ObjectPtr Make(const std::string& name, const std::string& version, const std::string& color = "",
               const std::string& uid = "u") {
  auto object = std::make_shared<Object>();
  object->meta.space = "a";
  object->meta.name = name;
  object->meta.uid = uid;
  object->meta.resource_version = version;
  if (!color.empty()) object->meta.labels.emplace_back("color", color);
  return object;
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    store_.AddIndex("color", [](const Object& object) {
      const std::string* color = Find(object.meta.labels, "color");
      // Twice, to show that it is no harm.
      return color ? std::vector{*color, *color} : std::vector<std::string>();
    });
    store_.AddHandler([this](const Change& change) {
      const auto text = [](const ObjectPtr& object) {
        return object ? object->meta.uid + object->meta.resource_version : "-";
      };
      const ObjectPtr& any = change.after ? change.after : change.before;
      told_ += any->meta.name + ":" + text(change.before) + ">" + text(change.after) + " ";
      // A handler sees the change that it is told of.
      EXPECT_EQ(store_.Get(KeyOf(any->meta)), change.after);
    });
  }
  std::size_t Count(const std::string& color) const { return store_.Find("color", color).size(); }
  std::string Told() { return std::exchange(told_, ""); }

  Store store_;
  std::string told_;
};

TEST_F(StoreTest, TellsOldAndNewInOrder) {
  store_.Put(Make("p", "1", "red"));
  store_.Put(Make("p", "2", "blue"));
  store_.Put(Make("p", "2", "blue"));  // seen already
  store_.Remove(Make("p", "3"));
  store_.Remove(Make("p", "3"));
  EXPECT_EQ(Told(), "p:->u1 p:u1>u2 p:u3>- ");
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(StoreTest, AnotherObjectUnderTheSameNameIsAnotherObject) {
  store_.Put(Make("p", "1", "red", "u"));
  store_.Put(Make("p", "2", "red", "v"));
  EXPECT_EQ(Told(), "p:->u1 p:u1>- p:->v2 ");
  store_.Remove(Make("p", "2", "", "u"));  // the end of the first, too late
  EXPECT_EQ(Told(), "");
  EXPECT_NE(store_.Get("a/p"), nullptr);
}

TEST_F(StoreTest, AListReplacesWhatIsThere) {
  store_.Put(Make("gone", "1", "red"));
  store_.Put(Make("same", "1", "red"));
  store_.Put(Make("moved", "1", "red"));
  Told();
  store_.Replace({Make("same", "1", "red"), Make("moved", "4", "blue"), Make("new", "5")});
  EXPECT_EQ(Told(), "gone:u1>- moved:u1>u4 new:->u5 ");
  EXPECT_EQ(store_.size(), 3u);
  EXPECT_EQ(Count("red"), 1u);
  EXPECT_EQ(Count("blue"), 1u);
  EXPECT_TRUE(store_.IsValid());
}

TEST_F(StoreTest, FindsByKeyAndIndex) {
  store_.Put(Make("p", "1", "red"));
  store_.Put(Make("q", "1", "red"));
  store_.Put(Make("r", "1"));
  EXPECT_EQ(store_.Get("a/p")->meta.name, "p");
  EXPECT_EQ(store_.Get("p"), nullptr);
  EXPECT_EQ(Count("red"), 2u);
  EXPECT_EQ(Count(""), 0u);
  EXPECT_TRUE(store_.Find("size", "red").empty());
  EXPECT_EQ(store_.All().size(), 3u);
}

TEST_F(StoreTest, StaysValidWhateverComes) {
  Jitter random(3);
  const char* colors[] = {"", "red", "blue"};
  for (int i = 0; i < 3000; ++i) {
    const std::string name(1, static_cast<char>('a' + random.Between(0, 8)));
    const std::string uid = random.Between(0, 10) == 0 ? "w" : "u";
    const ObjectPtr object = Make(name, std::to_string(i), colors[random.Between(0, 3)], uid);
    switch (random.Between(0, 8)) {
      case 0:
        store_.Replace({object});
        break;
      case 1:
      case 2:
        store_.Remove(object);
        break;
      default:
        store_.Put(object);
    }
    ASSERT_TRUE(store_.IsValid()) << i;
  }
}

// Run under TSan: readers meet one writer.
TEST(StoreThreads, ReadersSeeWholeObjects) {
  Store store;
  store.AddIndex("all", [](const Object&) { return std::vector<std::string>{"x"}; });
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      while (!done) {
        const ObjectPtr one = store.Get("a/p");
        if (one && one->meta.name != "p") ++wrong;
        for (const ObjectPtr& object : store.Find("all", "x")) {
          if (object->meta.space != "a") ++wrong;
        }
        if (store.All().size() > 2) ++wrong;
      }
    });
  }
  for (int i = 0; i < 500; ++i) {
    store.Put(Make("p", std::to_string(i)));
    store.Put(Make("q", std::to_string(i)));
    if (i % 7 == 0) store.Remove(Make("p", std::to_string(i)));
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(store.IsValid());
}

}  // namespace
}  // namespace tessera::kube
