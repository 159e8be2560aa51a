#include "node/mount_view.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <map>
#include <vector>

#include "base/files.h"
#include "base/process.h"
#include "contract/names.h"

namespace tessera::node {
namespace {

// Of a mount namespace with 25,000 mounts; what is longer is somebody's doing.
constexpr std::size_t kMostMountinfo = std::size_t{4} << 20;

// A line of proc_pid_mountinfo(5).
struct Mount {
  int id = 0, parent = 0;
  std::string_view device, root, point, type;
};

std::optional<Mount> ParseMount(std::string_view line) {
  std::array<std::string_view, 5> words;
  std::size_t at = 0;
  for (std::string_view& word : words) {
    const std::size_t end = line.find(' ', at);
    if (end == std::string_view::npos) return std::nullopt;
    word = line.substr(at, end - at);
    at = end + 1;
  }
  Mount mount;
  std::from_chars(words[0].data(), words[0].data() + words[0].size(), mount.id);
  std::from_chars(words[1].data(), words[1].data() + words[1].size(), mount.parent);
  mount.device = words[2];
  mount.root = words[3];
  mount.point = words[4];
  // Optional fields end with "-"; blanks within a field are written \040.
  const std::size_t dash = line.find(" - ", at - 1);
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(dash + 3);
  mount.type = rest.substr(0, rest.find(' '));
  return mount;
}

std::vector<Mount> ParseMounts(std::string_view text) {
  std::vector<Mount> mounts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (const std::optional<Mount> mount = ParseMount(text.substr(0, end))) {
      mounts.push_back(*mount);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return mounts;
}

// As the kernel writes paths there (seq_path with " \t\n\\").
std::string Escaped(std::string_view path) {
  static constexpr char kDigits[] = "01234567";
  std::string text;
  for (const char c : path) {
    if (c != ' ' && c != '\t' && c != '\n' && c != '\\') {
      text += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    text += {'\\', kDigits[byte >> 6], kDigits[byte >> 3 & 7], kDigits[byte & 7]};
  }
  return text;
}

bool IsBelow(std::string_view path, std::string_view folder) {
  if (folder == "/") return path.starts_with("/");
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

// The place of `path` in the mount that holds it.
std::optional<Place> PlaceInMount(const Mount& mount, std::string_view path) {
  if (mount.type.starts_with("nfs") || !IsBelow(path, mount.point)) return std::nullopt;
  std::string place(mount.root == "/" ? "" : mount.root);
  place += mount.point == "/" ? path : path.substr(mount.point.size());
  return std::string(mount.device) + " " + (place.empty() ? "/" : place);
}

// Where a walk from the root directory to `path` ends: at each directory it steps into what is
// mounted there, and again into what is mounted over that.
const Mount* MountThatHolds(const std::vector<Mount>& mounts, std::string_view path) {
  std::map<std::pair<int, std::string_view>, const Mount*> on;  // by parent and mount point
  std::map<int, bool> known;
  for (const Mount& mount : mounts) known[mount.id] = true;
  constexpr int kUnseen = -1;  // the mount of a root directory that is not listed itself
  for (const Mount& mount : mounts) {
    const bool listed = known.contains(mount.parent) && mount.parent != mount.id;
    on[{listed ? mount.parent : kUnseen, mount.point}] = &mount;
  }
  const Mount* at = nullptr;
  const auto step_into = [&](std::string_view point) {
    for (std::size_t steps = 0; steps <= mounts.size(); ++steps) {
      const auto next = on.find({at == nullptr ? kUnseen : at->id, point});
      if (next == on.end()) return;
      at = next->second;
    }
  };
  step_into("/");
  for (std::size_t end = path.find('/', 1); at != nullptr || !on.empty();
       end = path.find('/', end + 1)) {
    step_into(path.substr(0, end));
    if (end == std::string_view::npos) break;
  }
  return at;
}

Result<std::string> MountinfoOf(const std::string& process) {
  return base::ReadKernelFile("/proc/" + process + "/mountinfo", kMostMountinfo);
}

}  // namespace

std::optional<Place> PlaceIn(std::string_view mountinfo, const std::string& folder,
                             const std::string& file) {
  const std::vector<Mount> mounts = ParseMounts(mountinfo);
  const std::string path = Escaped(file);
  const Mount* mount = MountThatHolds(mounts, path);
  if (mount == nullptr || !IsBelow(mount->point, Escaped(folder))) return std::nullopt;
  return PlaceInMount(*mount, path);
}

bool SeenPolicy::Shows(const Place& policy) const {
  return place == policy || (mounted.size() == 1 && mounted.front() == policy);
}

SeenPolicy SeenIn(std::string_view mountinfo) {
  const std::string folder = contract::kSliceDir;
  SeenPolicy seen{true, PlaceIn(mountinfo, folder, folder + "/" + contract::kPolicyFile), {}};
  const std::string name = std::string("/") + contract::kPolicyFile;
  for (const Mount& mount : ParseMounts(mountinfo)) {
    if (!mount.root.ends_with(name)) continue;
    if (std::optional<Place> place = PlaceInMount(mount, mount.point)) {
      if (std::ranges::find(seen.mounted, *place) == seen.mounted.end()) {
        seen.mounted.push_back(std::move(*place));
      }
    }
  }
  return seen;
}

SeenPolicy PolicySeenBy(pid_t pid) {
  Result<std::string> text = MountinfoOf(std::to_string(pid));
  if (!text) {
    const pid_t thread = base::LivingThread(pid);
    if (thread != pid) text = MountinfoOf(std::to_string(thread));
  }
  if (!text) return {};
  return SeenIn(*text);
}

std::optional<Place> PlaceOf(int fd) {
  const std::string number = std::to_string(fd);
  const Result<std::string> info = base::ReadKernelFile("/proc/self/fdinfo/" + number, 65536);
  if (!info) return std::nullopt;
  constexpr std::string_view kField = "mnt_id:\t";
  const std::size_t at = info->find(kField);
  if (at == std::string::npos) return std::nullopt;
  int id = 0;
  std::from_chars(info->data() + at + kField.size(), info->data() + info->size(), id);
  char path[PATH_MAX];
  const ssize_t length = readlink(("/proc/self/fd/" + number).c_str(), path, sizeof path);
  if (length <= 0 || length == static_cast<ssize_t>(sizeof path)) return std::nullopt;
  const std::string escaped = Escaped({path, static_cast<std::size_t>(length)});
  const Result<std::string> text = MountinfoOf("self");
  if (!text) return std::nullopt;
  for (const Mount& mount : ParseMounts(*text)) {
    if (mount.id == id) return PlaceInMount(mount, escaped);
  }
  return std::nullopt;
}

}  // namespace tessera::node
