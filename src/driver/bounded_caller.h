// Runs calls that may never return on a thread that can be given up.
//
// Thread safety: Post and Wait from one thread. The work runs on the caller's own worker thread and
// must own all it touches (capture by value or shared_ptr), since it may outlive everybody.
// Invariants:
//   1. At most one worker thread per BoundedCaller ever exists.
//   2. While a call hangs, further calls fail at once; when it comes back after all, the next call
//   works again.
//   3. The destructor never waits for a hanging call: the worker is left to end by itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"

namespace tessera::driver {

class BoundedCaller {
 public:
  BoundedCaller();
  ~BoundedCaller();
  BoundedCaller(const BoundedCaller&) = delete;
  BoundedCaller& operator=(const BoundedCaller&) = delete;

  using TimePoint = std::chrono::steady_clock::time_point;

  // A call under way.
  template <typename T>
  class Pending {
   public:
    // The answer, or kDeadlineExceeded naming the call when there is none by `deadline`. Once only.
    Result<T> Wait(TimePoint deadline) {
      if (!done_) return Fail(Code::kDeadlineExceeded, what_ + ": still hangs in an earlier call");
      if (!done_(deadline)) return Fail(Code::kDeadlineExceeded, what_ + ": no answer in time");
      return std::move(**answer_);
    }

   private:
    friend class BoundedCaller;
    std::string what_;
    std::function<bool(TimePoint)> done_;  // empty: the call was not started
    std::shared_ptr<std::optional<Result<T>>> answer_;
  };

  // Starts `work`; its answer is fetched with Wait before the next Post.
  template <typename T>
  Pending<T> Post(std::string what, std::function<Result<T>()> work) {
    Pending<T> pending;
    pending.what_ = std::move(what);
    pending.answer_ = std::make_shared<std::optional<Result<T>>>();
    pending.done_ =
        Start([answer = pending.answer_, work = std::move(work)] { answer->emplace(work()); });
    return pending;
  }

 private:
  struct Worker;
  // Answers how to wait for the job; empty while an earlier one hangs.
  std::function<bool(TimePoint)> Start(std::function<void()> job);

  std::shared_ptr<Worker> worker_;
};

}  // namespace tessera::driver
