// A typed cache that keeps itself: a store, a reflector and the thread that runs it.
//
//   struct Pod : Object { std::string node; };
//   Cache<Pod> pods(transport, {.path = *CollectionPath(kPods)}, ReadPod, RealTimer());
//   pods.AddIndex("node", [](const Pod& pod) { return std::vector{pod.node}; });
//   pods.AddHandler([](const auto& before, const auto& after) { ... });
//   pods.Start();
//
// Thread safety: AddIndex and AddHandler before Start; the rest from any thread. Handlers run on
// the cache's thread, in order. Destroying it waits for the handler that runs.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kube/cache/reflector.h"
#include "kube/cache/store.h"

namespace tessera::kube {

template <typename T>
class Cache {
 public:
  using Ptr = std::shared_ptr<const T>;

  // `read`: Result<std::shared_ptr<T>>(JsonValue&), or one of const T. The references must outlive
  // the object.
  template <typename Read>
  Cache(Transport& transport, ReflectorOptions options, Read read, Timer& timer)
      : reflector_(
            transport, std::move(options),
            [read = std::move(read)](JsonValue& value) -> Result<ObjectPtr> {
              auto object = read(value);
              if (!object) return Fail(object.error());
              return ObjectPtr(std::move(*object));
            },
            store_, timer) {}

  template <typename F>  // std::vector<std::string>(const T&)
  void AddIndex(std::string name, F values) {
    store_.AddIndex(std::move(name), [values = std::move(values)](const Object& object) {
      return values(static_cast<const T&>(object));
    });
  }
  template <typename F>  // void(Ptr before, Ptr after); see Change
  void AddHandler(F handler) {
    store_.AddHandler([handler = std::move(handler)](const Change& change) {
      handler(Cast(change.before), Cast(change.after));
    });
  }
  void Start() {
    thread_ = std::jthread([this](std::stop_token stop) { reflector_.Run(std::move(stop)); });
  }

  Ptr Get(std::string_view key) const { return Cast(store_.Get(key)); }
  std::vector<Ptr> All() const { return Cast(store_.All()); }
  std::vector<Ptr> Find(std::string_view index, std::string_view value) const {
    return Cast(store_.Find(index, value));
  }
  std::size_t size() const { return store_.size(); }

  bool Synced() const { return reflector_.Synced(); }
  bool Stale() const { return reflector_.Stale(); }
  ReflectorState State() const { return reflector_.State(); }
  bool WaitSynced(std::int64_t until_ns, std::stop_token stop) const {
    return reflector_.WaitSynced(until_ns, std::move(stop));
  }

 private:
  static Ptr Cast(const ObjectPtr& object) { return std::static_pointer_cast<const T>(object); }
  static std::vector<Ptr> Cast(const std::vector<ObjectPtr>& objects) {
    std::vector<Ptr> typed;
    typed.reserve(objects.size());
    for (const ObjectPtr& object : objects) typed.push_back(Cast(object));
    return typed;
  }

  Store store_;
  Reflector reflector_;
  std::jthread thread_;  // last: it ends first
};

}  // namespace tessera::kube
