// An API server in this process, behind a real socket, that can be told to misbehave.
//
// Thread safety: all methods from any thread.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <string>

#include "kube/testing/api_model.h"
#include "kube/testing/http_server.h"

namespace tessera::kube::testing {

enum class Fault {
  kGone,         // 410 to a watch, as an event
  kHalfLine,     // the next event of a watch is cut in the middle
  kTooMany,      // 429, Retry-After: 1
  kSlow,         // the answer comes byte by byte
  kSilent,       // a watch that says nothing, whatever happens
  kReset,        // the connection is reset
  kUnavailable,  // 503
};

class FakeApi {
 public:
  explicit FakeApi(bool streaming_lists = true)
      : streaming_lists_(streaming_lists),
        server_(
            [this](const HttpRequest& request, HttpAnswer& answer) { Serve(request, answer); }) {}
  ~FakeApi() { stopping_ = true; }

  std::string url() const { return server_.url(); }
  ApiModel& model() { return model_; }

  // For the next request that it fits: one that is a watch (or is not).
  void Next(Fault fault, bool watch);
  std::size_t faults_left();
  void AcceptToken(std::string token);      // "" (the default): any
  void EndWatches() { ++ended_; }           // those that are open, cleanly
  int watches() const { return watches_; }  // that are open
  int lists() const { return lists_; }      // paged ones, and their pages

 private:
  void Serve(const HttpRequest& request, HttpAnswer& answer);
  void Watch(const Place& place, HttpAnswer& answer, std::optional<Fault> fault, int ended);
  std::optional<Fault> Take(bool watch);

  const bool streaming_lists_;
  ApiModel model_;
  std::mutex mutex_;
  std::deque<std::pair<Fault, bool>> faults_;  // guarded by mutex_, as the next
  std::string token_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> ended_{0}, watches_{0}, lists_{0};
  HttpServer server_;  // last: its threads end first
};

}  // namespace tessera::kube::testing
