// Changes the labels and annotations of an object that others change too, and of that object only:
// not of another one that was made under its name since.
//
// Thread safety: a function; blocks as Transport does.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "kube/objects/api.h"
#include "kube/objects/meta.h"
#include "kube/objects/patch.h"
#include "kube/pace/timer.h"

namespace tessera::kube {

struct GuardedChange {
  std::string path;  // of the object: ObjectPath
  std::string uid;   // of the object that is meant
  // What was last seen of it, to save a read; the server refuses when it is old, and it is read.
  std::optional<ObjectMeta> seen;
  // What to change, given how the object is now; nothing: it is as wanted. Called again after each
  // conflict. Its guards are filled in.
  std::function<Result<std::optional<MetaChange>>(const ObjectMeta& now)> change;
  int most_tries = 5;
};

// The object as it is afterwards. kNotFound: it is gone, or another one has its name. kAborted:
// others changed it each time. Errors of `change` and of the API as they are. After an error that
// leaves open whether it was done (transport.h) the caller asks again: `change` sees then.
Result<ObjectMeta> ChangeGuarded(Api& api, GuardedChange what, Timer& timer, std::stop_token stop);

}  // namespace tessera::kube
