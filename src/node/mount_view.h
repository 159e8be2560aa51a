// Which file stands at a path for another process, by the kernel's list of its mounts.
//
// Nothing is opened or looked at through /proc/PID/root: a tenant may mount a file system there
// that never answers, and whoever steps into it waits with it. /proc/PID/mountinfo is the kernel's
// own text. A place is the same for everybody who sees the same file, whatever is mounted where.
//
// Thread safety: pure reads.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::node {

// "MAJOR:MINOR /path within that file system", as mountinfo writes both.
using Place = std::string;

// Where `file` (absolute, no symbolic links) is by the text of a mountinfo, when the mount that
// holds it stands at `folder` or below: nothing of ours is mounted elsewhere. None: nothing stands
// there.
std::optional<Place> PlaceIn(std::string_view mountinfo, const std::string& folder,
                             const std::string& file);

// What a process has of policies in its view. `readable` false: it cannot be told, for the list may
// not be read or is longer than any machine's.
struct SeenPolicy {
  bool readable = false;
  std::optional<Place>
      place;  // what stands at /run/tessera/policy; none: no mount of ours is there
  std::vector<Place> mounted;  // every mount of a file named "policy", covered ones included

  // Whether the process is in the slice whose policy that is: it sees it, or has it and no other
  // below something that was mounted over it.
  bool Shows(const Place& policy) const;
};
SeenPolicy SeenIn(std::string_view mountinfo);
SeenPolicy PolicySeenBy(pid_t pid);

// The place of the file behind an open descriptor of this process (O_PATH will do). None where the
// file system does not say: NFS shows "/" for every mount.
std::optional<Place> PlaceOf(int fd);

}  // namespace tessera::node
