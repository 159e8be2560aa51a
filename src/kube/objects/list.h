// Lists and lines of a watch, decoded item by item.
//
// Thread safety: pure functions. Errors as in reader.h; an item that cannot be read is an error of
// the whole: a cache that silently misses one would be wrong for ever.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/objects/meta.h"
#include "kube/objects/status.h"

namespace tessera::kube {

struct ObjectList {
  std::string resource_version;
  std::string next;  // "continue": empty on the last page
  std::vector<ObjectPtr> items;
};

// kDataLoss also for a list without a resourceVersion.
Result<ObjectList> ReadList(std::string& text, const ObjectReader& reader);

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark, kError };

  Type type = Type::kError;
  ObjectPtr object;  // not for kError; for kBookmark with a resource version and annotations only
  ApiStatus status;  // for kError
};

// The annotation of the bookmark that ends the initial events of a streaming list.
inline constexpr std::string_view kInitialEventsEnd = "k8s.io/initial-events-end";
bool EndsInitialEvents(const WatchEvent& event);

// kDataLoss also for a type that is not known, and for an event without a resourceVersion.
Result<WatchEvent> ReadWatchLine(std::string& line, const ObjectReader& reader);

}  // namespace tessera::kube
