#include "driver/bounded_caller.h"

#include <csignal>
#include <system_error>
#include <thread>

namespace tessera::driver {

struct BoundedCaller::Worker {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> job;
  std::uint64_t started = 0, finished = 0;  // jobs so far
  bool running = false;                     // a thread stands behind this
  bool stop = false;
};

namespace {

// Signals are for the program's own threads: a worker that took SIGINT would keep the launcher from
// forwarding it.
void BlockAllSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

BoundedCaller::BoundedCaller() : worker_(std::make_shared<Worker>()) {}

BoundedCaller::~BoundedCaller() {
  const std::lock_guard lock(worker_->mutex);
  worker_->stop = true;
  worker_->changed.notify_all();
}

std::function<bool(BoundedCaller::TimePoint)> BoundedCaller::Start(std::function<void()> job) {
  std::unique_lock lock(worker_->mutex);
  if (worker_->started != worker_->finished) return {};
  worker_->job = std::move(job);
  const std::uint64_t ticket = ++worker_->started;
  if (!worker_->running) {
    auto loop = [worker = worker_] {
      BlockAllSignals();
      std::unique_lock lock(worker->mutex);
      while (!worker->stop) {
        if (!worker->job) {
          worker->changed.wait(lock);
          continue;
        }
        const std::function<void()> job = std::exchange(worker->job, nullptr);
        lock.unlock();
        job();
        lock.lock();
        worker->finished = worker->started;
        worker->changed.notify_all();
      }
    };
    try {
      std::thread(std::move(loop)).detach();
      worker_->running = true;
    } catch (const std::system_error&) {  // no more threads for this user
      worker_->job = nullptr;
      worker_->finished = worker_->started;
      return [](TimePoint) { return false; };
    }
  }
  worker_->changed.notify_all();
  return [worker = worker_, ticket](TimePoint deadline) {
    std::unique_lock lock(worker->mutex);
    return worker->changed.wait_until(lock, deadline, [&] { return worker->finished >= ticket; });
  };
}

}  // namespace tessera::driver
