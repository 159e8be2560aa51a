#include "kube/cache/store.h"

#include <mutex>
#include <utility>

namespace tessera::kube {

void Store::AddIndex(std::string name, Indexer indexer) {
  std::unique_lock lock(mutex_);
  indexes_[std::move(name)].indexer = std::move(indexer);
}

void Store::AddHandler(ChangeHandler handler) { handlers_.push_back(std::move(handler)); }

ObjectPtr Store::Get(std::string_view key) const {
  std::shared_lock lock(mutex_);
  const auto at = objects_.find(key);
  return at == objects_.end() ? nullptr : at->second;
}

std::vector<ObjectPtr> Store::All() const {
  std::shared_lock lock(mutex_);
  std::vector<ObjectPtr> all;
  all.reserve(objects_.size());
  for (const auto& [key, object] : objects_) all.push_back(object);
  return all;
}

std::vector<ObjectPtr> Store::Find(std::string_view index, std::string_view value) const {
  std::shared_lock lock(mutex_);
  std::vector<ObjectPtr> found;
  const auto at = indexes_.find(index);
  if (at == indexes_.end()) return found;
  const auto keys = at->second.keys.find(value);
  if (keys == at->second.keys.end()) return found;
  found.reserve(keys->second.size());
  for (const std::string& key : keys->second) found.push_back(objects_.at(key));
  return found;
}

std::size_t Store::size() const {
  std::shared_lock lock(mutex_);
  return objects_.size();
}

void Store::Set(const std::string& key, const ObjectPtr& object) {
  // Indexers are the owner's code: they run before the lock is taken.
  struct Move {
    Index& index;
    std::vector<std::string> from, to;
  };
  const ObjectPtr before = Get(key);
  std::vector<Move> moves;
  for (auto& [name, index] : indexes_) {
    Move move{index, {}, {}};
    if (before) move.from = index.indexer(*before);
    if (object) move.to = index.indexer(*object);
    moves.push_back(std::move(move));
  }
  std::unique_lock lock(mutex_);
  for (const Move& move : moves) {
    for (const std::string& value : move.from) {
      const auto keys = move.index.keys.find(value);
      if (keys == move.index.keys.end()) continue;  // the same value twice
      keys->second.erase(key);
      if (keys->second.empty()) move.index.keys.erase(keys);
    }
    for (const std::string& value : move.to) move.index.keys[value].insert(key);
  }
  if (object) {
    objects_[key] = object;
  } else {
    objects_.erase(key);
  }
}

void Store::Tell(const Change& change) const {
  for (const ChangeHandler& handler : handlers_) handler(change);
}

void Store::Put(ObjectPtr object) {
  const std::string key = KeyOf(object->meta);
  ObjectPtr before = Get(key);
  if (before && before->meta.uid != object->meta.uid) {
    Remove(before);
    before = nullptr;
  }
  if (before && before->meta.resource_version == object->meta.resource_version) return;
  Set(key, object);
  Tell({before, object});
}

void Store::Remove(const ObjectPtr& last) {
  const std::string key = KeyOf(last->meta);
  const ObjectPtr held = Get(key);
  if (!held || held->meta.uid != last->meta.uid) return;  // another one under its name
  Set(key, nullptr);
  Tell({last, nullptr});
}

void Store::Replace(std::vector<ObjectPtr> objects) {
  Keys listed;
  for (const ObjectPtr& object : objects) listed.insert(KeyOf(object->meta));
  for (const ObjectPtr& object : All()) {
    if (!listed.contains(KeyOf(object->meta))) Remove(object);
  }
  for (ObjectPtr& object : objects) Put(std::move(object));
}

bool Store::IsValid() const {
  std::shared_lock lock(mutex_);
  for (const auto& [key, object] : objects_) {
    if (!object || KeyOf(object->meta) != key) return false;
  }
  for (const auto& [name, index] : indexes_) {
    std::map<std::string, Keys> expected;
    for (const auto& [key, object] : objects_) {
      for (const std::string& value : index.indexer(*object)) expected[value].insert(key);
    }
    if (expected.size() != index.keys.size()) return false;
    for (const auto& [value, keys] : expected) {
      const auto at = index.keys.find(value);
      if (at == index.keys.end() || at->second != keys) return false;
    }
  }
  return true;
}

}  // namespace tessera::kube
