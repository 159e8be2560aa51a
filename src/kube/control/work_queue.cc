#include "kube/control/work_queue.h"

#include <algorithm>
#include <chrono>

namespace tessera::kube {

void WorkQueue::AddLocked(const std::string& key) {
  if (closed_) return;
  if (const auto due = due_.find(key); due != due_.end()) {
    delayed_.erase({due->second, key});
    due_.erase(due);
  }
  if (working_.contains(key)) {
    again_.insert(key);
  } else if (queued_.insert(key).second) {
    waiting_.push_back(key);
    changed_.notify_one();
  }
}

void WorkQueue::DelayLocked(const std::string& key, std::int64_t due_ns) {
  if (closed_ || queued_.contains(key) || again_.contains(key)) return;
  const auto [at, is_new] = due_.emplace(key, due_ns);
  if (!is_new) {
    if (at->second <= due_ns) return;
    delayed_.erase({at->second, key});
    at->second = due_ns;
  }
  delayed_.emplace(due_ns, key);
  changed_.notify_all();  // somebody waits for a later one
}

void WorkQueue::Add(const std::string& key) {
  std::lock_guard lock(mutex_);
  AddLocked(key);
}

void WorkQueue::AddAfter(const std::string& key, std::int64_t delay_ns) {
  std::lock_guard lock(mutex_);
  if (delay_ns <= 0) return AddLocked(key);
  DelayLocked(key, timer_.NowNs() + delay_ns);
}

void WorkQueue::AddAfterFailure(const std::string& key) {
  std::lock_guard lock(mutex_);
  const int failures = failures_[key]++;
  std::int64_t step = options_.backoff.first_ns;
  for (int i = 0; i < failures && step < options_.backoff.most_ns; ++i) step *= 2;
  step = std::min(step, options_.backoff.most_ns);
  DelayLocked(key, timer_.NowNs() + jitter_.Between(step / 2, step));
}

void WorkQueue::Forget(const std::string& key) {
  std::lock_guard lock(mutex_);
  failures_.erase(key);
}

int WorkQueue::Failures(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto at = failures_.find(key);
  return at == failures_.end() ? 0 : at->second;
}

void WorkQueue::PromoteLocked() {
  const std::int64_t now = timer_.NowNs();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const std::string key = delayed_.begin()->second;
    AddLocked(key);  // takes it out of delayed_
  }
}

std::optional<std::string> WorkQueue::TakeLocked() {
  PromoteLocked();
  if (waiting_.empty()) return std::nullopt;
  std::string key = std::move(waiting_.front());
  waiting_.pop_front();
  queued_.erase(key);
  working_.insert(key);
  return key;
}

std::optional<std::string> WorkQueue::TryTake() {
  std::lock_guard lock(mutex_);
  return TakeLocked();
}

std::optional<std::string> WorkQueue::Take(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (auto key = TakeLocked()) return key;
    if (closed_) return std::nullopt;
    const std::size_t delayed = delayed_.size();
    const std::int64_t due = delayed_.empty() ? 0 : delayed_.begin()->first;
    const auto news = [&] {
      return closed_ || !waiting_.empty() || delayed_.size() != delayed ||
             (!delayed_.empty() && delayed_.begin()->first != due);
    };
    if (delayed == 0) {
      changed_.wait(lock, stop, news);
    } else {
      changed_.wait_until(
          lock, stop, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(due)), news);
    }
  }
  return std::nullopt;
}

void WorkQueue::Done(const std::string& key) {
  std::lock_guard lock(mutex_);
  working_.erase(key);
  if (again_.erase(key) > 0) AddLocked(key);
}

std::optional<std::int64_t> WorkQueue::NextDueNs() const {
  std::lock_guard lock(mutex_);
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

void WorkQueue::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  delayed_.clear();
  due_.clear();
  again_.clear();
  changed_.notify_all();
}

std::size_t WorkQueue::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

}  // namespace tessera::kube
