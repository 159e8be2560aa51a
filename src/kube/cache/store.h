// What a cache holds: objects by key, indexes over them, and who is told of changes.
//
// Thread safety: reads from any thread, at any time; what they return stays as it is for as long as
// the reader holds it. Changes from one thread (the reflector's), which also calls the handlers, in
// the order in which they were added and without any lock: a handler may read the store, and sees
// the change it is told of. A handler that blocks holds the watch, and nothing else.
//
// Invariants (IsValid):
//   1. an index holds an entry for each value that an object has now, and no other;
//   2. keys are those of the objects.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kube/objects/meta.h"

namespace tessera::kube {

// Which values an object is found by; none: it is not in this index.
using Indexer = std::function<std::vector<std::string>(const Object&)>;

// before: nullptr for a new object; after: nullptr for one that is gone, `before` is then the last
// that was seen of it. An object that was deleted and made again under the same name without our
// seeing it comes as two changes, first gone, then new.
struct Change {
  ObjectPtr before, after;
};
using ChangeHandler = std::function<void(const Change&)>;

class Store {
 public:
  // Both before the first change.
  void AddIndex(std::string name, Indexer indexer);
  void AddHandler(ChangeHandler handler);

  ObjectPtr Get(std::string_view key) const;  // nullptr: not there
  std::vector<ObjectPtr> All() const;         // in no order
  // None for an index that is not there.
  std::vector<ObjectPtr> Find(std::string_view index, std::string_view value) const;
  std::size_t size() const;

  // Nobody is told of an object whose uid and resource version are those that are held.
  void Put(ObjectPtr object);
  void Remove(const ObjectPtr& last);
  // After this the store holds `objects` and nothing else.
  void Replace(std::vector<ObjectPtr> objects);

  bool IsValid() const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Keys = std::unordered_set<std::string>;
  struct Index {
    Indexer indexer;
    std::unordered_map<std::string, Keys, Hash, std::equal_to<>> keys;  // by value
  };

  void Set(const std::string& key, const ObjectPtr& object);  // nullptr removes
  void Tell(const Change& change) const;

  std::vector<ChangeHandler> handlers_;
  mutable std::shared_mutex mutex_;
  // guarded by mutex_, as the next; the set of indexes does not change once objects come
  std::unordered_map<std::string, ObjectPtr, Hash, std::equal_to<>> objects_;
  std::map<std::string, Index, std::less<>> indexes_;
};

}  // namespace tessera::kube
