#include "kube/testing/api_model.h"

#include <chrono>

#include "kube/text/json.h"
#include "kube/text/uri.h"

namespace tessera::kube::testing {
namespace {

using boost::json::object;

Response Refuse(int code, const char* reason, const std::string& message) {
  return {code, -1,
          boost::json::serialize(object{{"kind", "Status"},
                                        {"status", "Failure"},
                                        {"reason", reason},
                                        {"message", message},
                                        {"code", code}})};
}

object& MetaOf(object& item) {
  boost::json::value& meta = item["metadata"];
  if (!meta.is_object()) meta = object();
  return meta.as_object();
}

std::string Text(const object& from, const char* key) {
  const boost::json::value* value = from.if_contains(key);
  return value && value->is_string() ? std::string(value->as_string()) : "";
}

// RFC 7386.
void Merge(object& into, const object& patch) {
  for (const auto& [key, value] : patch) {
    if (value.is_null()) {
      into.erase(key);
    } else if (value.is_object()) {
      if (!into[key].is_object()) into[key] = object();
      Merge(into[key].as_object(), value.as_object());
    } else {
      into[key] = value;
    }
  }
}

std::string Line(const char* type, const object& item) {
  return boost::json::serialize(object{{"type", type}, {"object", item}}) + "\n";
}

bool Covers(const Place& collection, const std::string& resource, const std::string& space) {
  return collection.resource == resource && (collection.space.empty() || collection.space == space);
}

}  // namespace

Place PlaceOf(std::string_view target) {
  Place place;
  const std::size_t mark = target.find('?');
  for (std::string_view query = mark == target.npos ? "" : target.substr(mark + 1);
       !query.empty();) {
    const std::string_view pair = query.substr(0, query.find('&'));
    const std::size_t equals = pair.find('=');
    place.query[std::string(pair.substr(0, equals))] =
        equals == pair.npos ? "" : PercentDecode(pair.substr(equals + 1));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
  }
  std::vector<std::string> words;
  for (std::string_view path = target.substr(0, mark); !path.empty();) {
    path.remove_prefix(1);
    words.push_back(PercentDecode(path.substr(0, path.find('/'))));
    path.remove_prefix(std::min(words.back().size(), path.size()));
  }
  std::size_t at = !words.empty() && words[0] == "apis" ? 3 : 2;
  for (std::size_t i = 0; i < at && i < words.size(); ++i) place.resource += "/" + words[i];
  if (at + 1 < words.size() && words[at] == "namespaces") {
    place.space = words[at + 1];
    at += 2;
  }
  if (at < words.size()) place.resource += " " + words[at];
  if (at + 1 < words.size()) place.name = words[at + 1];
  if (at + 2 < words.size()) place.subresource = words[at + 2];
  return place;
}

struct ApiModel::State {
  struct Key {
    std::string resource, space, name;
    auto operator<=>(const Key&) const = default;
  };
  struct Logged {
    Event event;
    std::string resource, space;
  };
  std::map<Key, object> objects;
  std::vector<Logged> log;
  std::int64_t version = 100, compacted = 0, uids = 0;
  std::size_t writes = 0;
};

ApiModel::ApiModel() : state_(std::make_unique<State>()) {}
ApiModel::~ApiModel() = default;

void ApiModel::Record(const char* type, const Place& place, const object& item) {
  state_->log.push_back({{state_->version, Line(type, item)}, place.resource, place.space});
  changed_.notify_all();
}

Response ApiModel::Handle(const std::string& method, const std::string& target,
                          const std::string& body, const std::string& content_type) {
  const Place place = PlaceOf(target);
  std::lock_guard lock(mutex_);
  if (method == "GET" && place.name.empty()) return List(place);
  if (method == "GET") {
    const auto at = state_->objects.find({place.resource, place.space, place.name});
    if (at == state_->objects.end()) return Refuse(404, "NotFound", place.name + " not found");
    return {200, -1, boost::json::serialize(at->second)};
  }
  return Write(method, place, body, content_type);
}

Response ApiModel::List(const Place& place) {
  boost::json::array items;
  const auto limit = place.query.find("limit"), next = place.query.find("continue");
  const std::size_t most = limit == place.query.end() ? SIZE_MAX : std::stoul(limit->second);
  std::string more;
  for (const auto& [key, item] : state_->objects) {
    if (!Covers(place, key.resource, key.space)) continue;
    const std::string name = key.space + "/" + key.name;
    if (next != place.query.end() && name <= next->second) continue;
    if (items.size() == most) break;
    items.push_back(item);
    more = items.size() == most ? name : "";
  }
  return {200, -1,
          boost::json::serialize(object{
              {"kind", "List"},
              {"metadata",
               object{{"resourceVersion", std::to_string(state_->version)}, {"continue", more}}},
              {"items", std::move(items)}})};
}

Response ApiModel::Write(const std::string& method, const Place& place, const std::string& body,
                         const std::string& content_type) {
  const auto parsed = ParseJson(body.empty() ? "{}" : body);
  if (!parsed || !parsed->is_object()) return Refuse(400, "BadRequest", "no JSON object");
  object given = parsed->as_object();
  Place at = place;
  if (method == "POST" && place.subresource.empty()) at.name = Text(MetaOf(given), "name");
  const State::Key key{at.resource, at.space, at.name};
  const auto found = state_->objects.find(key);
  const bool exists = found != state_->objects.end();
  const bool creates =
      method == "POST" || (content_type == "application/apply-patch+yaml" && !exists);
  if (method == "POST" && exists) return Refuse(409, "AlreadyExists", at.name + " already exists");
  if (!creates && !exists) return Refuse(404, "NotFound", at.name + " not found");
  if (exists) {
    const object& only = method == "DELETE" && given.contains("preconditions")
                             ? given["preconditions"].as_object()
                             : MetaOf(given);
    const object& meta = MetaOf(found->second);
    for (const char* guard : {"resourceVersion", "uid"}) {
      const std::string wanted = Text(only, guard);
      if (!wanted.empty() && wanted != Text(meta, guard)) {
        return Refuse(409, "Conflict", std::string(guard) + " is another");
      }
    }
  }
  ++state_->version;
  ++state_->writes;
  const std::string version = std::to_string(state_->version);
  if (method == "DELETE") {
    object last = found->second;
    MetaOf(last)["resourceVersion"] = version;
    state_->objects.erase(found);
    Record("DELETED", at, last);
    return {200, -1, R"({"kind":"Status","status":"Success"})"};
  }
  object made = exists ? found->second : object();
  if (method == "PATCH") {
    Merge(made, given);
  } else {
    const object meta = exists ? MetaOf(made) : object();
    made = std::move(given);
    if (exists) MetaOf(made)["uid"] = meta.at("uid");
  }
  object& meta = MetaOf(made);
  meta["name"] = at.name;
  if (!at.space.empty()) meta["namespace"] = at.space;
  if (!exists) meta["uid"] = "uid-" + std::to_string(++state_->uids);
  meta["resourceVersion"] = version;
  state_->objects[key] = made;
  Record(exists ? "MODIFIED" : "ADDED", at, made);
  return {exists ? 200 : 201, -1, boost::json::serialize(made)};
}

ApiModel::Events ApiModel::Since(const Place& place, std::int64_t version, int wait_ms) {
  std::unique_lock lock(mutex_);
  Events events;
  const auto look = [&] {
    for (const State::Logged& logged : state_->log) {
      if (logged.event.version > version && Covers(place, logged.resource, logged.space)) {
        events.events.push_back(logged.event);
      }
    }
    return !events.events.empty();
  };
  if (version < state_->compacted) {
    events.gone = true;
  } else if (version > state_->version) {
    events.too_large = true;
  } else {
    changed_.wait_for(lock, std::chrono::milliseconds(wait_ms), look);
  }
  events.version = state_->version;
  return events;
}

ApiModel::Events ApiModel::Now(const Place& place) {
  std::lock_guard lock(mutex_);
  Events events;
  events.version = state_->version;
  for (const auto& [key, item] : state_->objects) {
    if (Covers(place, key.resource, key.space)) {
      events.events.push_back({state_->version, Line("ADDED", item)});
    }
  }
  return events;
}

void ApiModel::Compact() {
  std::lock_guard lock(mutex_);
  state_->log.clear();
  state_->compacted = ++state_->version;
}

void ApiModel::Restore(std::int64_t version) {
  std::lock_guard lock(mutex_);
  state_->log.clear();
  state_->compacted = 0;
  state_->version = version;
}

std::int64_t ApiModel::version() const {
  std::lock_guard lock(mutex_);
  return state_->version;
}

std::size_t ApiModel::writes() const {
  std::lock_guard lock(mutex_);
  return state_->writes;
}

Result<Response> ModelTransport::Send(const Request& request, std::stop_token stop) {
  if (stop.stop_requested()) return Fail(Code::kCancelled, "given up");
  const std::optional<Fault> fails = fault ? fault(request) : std::nullopt;
  if (fails && !fails->done) return Fail(fails->code, "scripted");
  Response response =
      model_.Handle(request.method, request.path, request.body, request.content_type);
  if (fails) return Fail(fails->code, "scripted, after it was done");
  return response;
}

}  // namespace tessera::kube::testing
