// What an API server keeps and answers, without a network: objects with versions, conflicts, pages,
// and the events of a watch. Knows no schema: any collection may be used.
//
// Thread safety: all methods from any thread.
#pragma once

#include <boost/json/fwd.hpp>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/http/transport.h"

namespace tessera::kube::testing {

// A path of the API taken apart.
struct Place {
  std::string resource;  // "/api/v1 pods"
  std::string space, name, subresource;
  std::map<std::string, std::string> query;
};
Place PlaceOf(std::string_view target);

class ApiModel {
 public:
  ApiModel();
  ~ApiModel();

  // One request that is no watch.
  Response Handle(const std::string& method, const std::string& target, const std::string& body,
                  const std::string& content_type);

  struct Event {
    std::int64_t version = 0;
    std::string line;
  };
  struct Events {
    bool gone = false;       // that version is no longer kept
    bool too_large = false;  // or not there yet
    std::vector<Event> events;
    std::int64_t version = 0;  // of the model
  };
  // What happened to the place after `version`; waits up to wait_ms for something.
  Events Since(const Place& place, std::int64_t version, int wait_ms);
  // What is there, as lines of ADDED events.
  Events Now(const Place& place);

  void Compact();                      // forgets what happened
  void Restore(std::int64_t version);  // counts from an earlier version, as after a restored backup
  std::int64_t version() const;
  std::size_t writes() const;  // requests that changed something

 private:
  struct State;
  Response List(const Place& place);
  Response Write(const std::string& method, const Place& place, const std::string& body,
                 const std::string& content_type);
  void Record(const char* type, const Place& place, const boost::json::object& object);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<State> state_;  // guarded by mutex_
};

// The model as a transport, for tests in virtual time: requests only.
class ModelTransport final : public Transport {
 public:
  explicit ModelTransport(ApiModel& model) : model_(model) {}
  Result<Response> Send(const Request& request, std::stop_token stop) override;
  Result<Response> Stream(const Request&, const LineHandler&, std::stop_token) override {
    return Fail(Code::kUnimplemented, "no watches here");
  }

  // Called before each request; an error is what comes of it (after it was done, when `done`).
  struct Fault {
    Code code = Code::kUnavailable;
    bool done = false;
  };
  std::function<std::optional<Fault>(const Request&)> fault;

 private:
  ApiModel& model_;
};

}  // namespace tessera::kube::testing
