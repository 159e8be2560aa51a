#include "kube/control/guarded.h"

#include <utility>

#include "base/plain_text.h"
#include "kube/pace/backoff.h"

namespace tessera::kube {
namespace {

Result<ObjectMeta> MetaOf(Result<std::string> body) {
  if (!body) return Fail(body.error());
  ObjectMeta meta;
  const Status done = ReadJson(*body, [&](JsonValue& root) {
    return ReadInto(root, meta, [](std::string_view, JsonValue&) -> Status { return {}; });
  });
  if (!done) return Fail(done.error());
  return meta;
}

tl::unexpected<Error> Another(const GuardedChange& what) {
  return Fail(Code::kNotFound,
              what.path + ": the object with uid " + base::Shown(what.uid) + " is gone");
}

}  // namespace

Result<ObjectMeta> ChangeGuarded(Api& api, GuardedChange what, Timer& timer, std::stop_token stop) {
  Backoff backoff({.first_ns = 20 * kNsPerMs, .most_ns = kNsPerSecond}, Jitter());
  Error last;
  for (int tries = 0; tries < what.most_tries; ++tries) {
    Result<ObjectMeta> now =
        what.seen ? Result<ObjectMeta>(std::move(*what.seen)) : MetaOf(api.Get(what.path, stop));
    what.seen.reset();
    if (!now) return now;
    if (now->uid != what.uid) return Another(what);
    Result<std::optional<MetaChange>> change = what.change(*now);
    if (!change) return Fail(change.error());
    if (!*change) return now;
    (*change)->uid = what.uid;
    (*change)->resource_version = now->resource_version;
    Result<ObjectMeta> changed =
        MetaOf(api.Patch(what.path, kMergePatchType, MergePatch(**change), stop));
    if (changed) return changed;
    last = changed.error();
    // Another uid is no conflict to the API server but an invalid change: looked at again.
    if (last.code == Code::kInvalidArgument) {
      const Result<ObjectMeta> again = MetaOf(api.Get(what.path, stop));
      return again && again->uid != what.uid ? Another(what) : Fail(last);
    }
    if (last.code != Code::kAborted) return Fail(last);
    if (!timer.WaitFor(backoff.NextNs(timer.NowNs()), stop)) {
      return Fail(Code::kCancelled, "given up");
    }
  }
  return Fail(last);
}

}  // namespace tessera::kube
