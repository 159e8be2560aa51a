#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/files.h"
#include "base/plain_text.h"
#include "contract/names.h"
#include "node/slice_folder.h"
#include "node/state_lock.h"
#include "node/store.h"

namespace tessera::node {
namespace {

constexpr mode_t kSharedMode = 01777;  // as /tmp: all users make slices, each removes only its own
constexpr mode_t kPrivateMode = 0700;

std::string SlicesOf(const std::string& root) { return root + "/slices"; }

// Empty when slices can be made there, else why not.
std::string WhyUnusable(const std::string& root) {
  if (access(SlicesOf(root).c_str(), W_OK | X_OK) != 0) return std::strerror(errno);
  const Result<base::Folder> slices = OpenSlices(root);
  return slices ? "" : slices.error().message;
}

// Makes root, root/slices and root/lock as far as they are missing. Others come in when all stand:
// nobody else can have made one of them.
Status Make(const std::string& root, mode_t mode) {
  constexpr mode_t kClosed = 0755;
  const bool is_new = !base::IsDirectory(root);
  if (is_new) {
    if (Status made = base::MakeDirectory(root, mode & kClosed); !made) return made;
  }
  if (!base::IsDirectory(SlicesOf(root))) {
    if (Status made = base::MakeDirectory(SlicesOf(root), mode); !made) return made;
    // What cannot be made now is said by whoever needs it.
    if (Status made = MakeStateLock(root); !made && is_new) return made;
  }
  if (!is_new) return {};
  const Result<base::Folder> made = base::Folder::Open(root);
  if (!made) return Fail(made.error());
  if (fchmod(made->fd(), mode) != 0) return FailErrno(root, errno);
  return {};
}

// A folder where nobody else can have put anything.
bool IsOwnAndClosed(const std::string& path) {
  struct stat info{};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & 022) == 0;
}

// Where a user's own promises may be, best first: below a folder that only the user writes, else
// one of a few names in /tmp, for who makes one first has it.
std::vector<std::string> UserFolders() {
  constexpr int kNames = 16;
  const std::string user = std::to_string(geteuid());
  std::vector<std::string> folders;
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  for (const std::string& parent :
       {std::string(runtime != nullptr ? runtime : ""), "/run/user/" + user}) {
    if (parent.starts_with('/') && IsOwnAndClosed(parent)) folders.push_back(parent + "/tessera");
  }
  for (int i = 1; i <= kNames; ++i)
    folders.push_back("/tmp/tessera-" + user + (i > 1 ? "." + std::to_string(i) : ""));
  return folders;
}

// One that holds promises already, else the first that nobody else has; empty when all are taken.
std::string UserFolder() {
  const std::vector<std::string> folders = UserFolders();
  for (const std::string& folder : folders) {
    if (IsOwnAndClosed(folder) && base::IsDirectory(SlicesOf(folder))) return folder;
  }
  for (const std::string& folder : folders) {
    struct stat info{};
    if (IsOwnAndClosed(folder) || (lstat(folder.c_str(), &info) != 0 && errno == ENOENT))
      return folder;
  }
  return "";
}

// The directory somebody named, and how; empty when nobody did.
struct Named {
  std::string path, how;
};
Named NamedBySomebody(const std::string& flag) {
  if (!flag.empty()) return {flag, "--state"};
  const char* variable = getenv("TESSERA_STATE");
  if (variable != nullptr && variable[0] != '\0') return {variable, "TESSERA_STATE"};
  return {};
}

tl::unexpected<Error> Unusable(const Named& named, const std::string& why) {
  return Fail(Code::kUnavailable, named.how + ": '" + base::Shown(named.path) +
                                      "' cannot hold promises: " + why +
                                      "; give a directory that you may write");
}

Result<StateRoot> UseNamed(const Named& named) {
  if (named.path[0] != '/') return Unusable(named, "not an absolute path");
  struct stat info{};
  if (stat(named.path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode))
    return Unusable(named, "not a directory");
  // An existing directory is taken with its own mode: whoever made it said who may come in.
  mode_t mode = geteuid() == 0 ? kSharedMode : mode_t{0755};
  if (Status made = Make(named.path, mode); !made) {
    return Unusable(named, made.error().message);
  }
  if (std::string why = WhyUnusable(named.path); !why.empty()) return Unusable(named, why);
  return StateRoot{named.path, true, ""};
}

}  // namespace

Result<StateRoot> FindStateRoot(const std::string& flag) {
  Named named = NamedBySomebody(flag);
  if (!named.path.empty()) return UseNamed(named);

  const std::string shared = contract::kHostStateDir;
  Status made = Make(shared, kSharedMode);
  std::string why = made ? WhyUnusable(shared) : made.error().message;
  if (why.empty()) return StateRoot{shared, true, ""};

  const std::string own = UserFolder();
  if (own.empty()) {
    return Fail(Code::kUnavailable, "no state directory: " + why + ", and " + UserFolders().back() +
                                        " and all others of that name belong to somebody else; "
                                        "name one with --state DIR");
  }
  if (Status own_made = Make(own, kPrivateMode); !own_made) {
    return Fail(Code::kUnavailable, "no state directory: " + why + ", and " +
                                        own_made.error().message + "; name one with --state DIR");
  }
  if (!IsOwnAndClosed(own)) {
    return Fail(Code::kUnavailable,
                "no state directory: " + why + ", and " + own +
                    " belongs to somebody else or is open to others; name one with --state DIR");
  }
  if (std::string own_why = WhyUnusable(own); !own_why.empty()) {
    return Fail(Code::kUnavailable, "no state directory: " + why + ", and " + own + ": " + own_why +
                                        "; name one with --state DIR");
  }
  return StateRoot{own, false,
                   "promises are kept in " + own + ", not shared with other users (" + shared +
                       " cannot be used; root makes it by running tessera once)"};
}

Result<StateRoot> FindStateRootToRead(const std::string& flag) {
  Named named = NamedBySomebody(flag);
  if (!named.path.empty()) {
    if (named.path[0] != '/') return Unusable(named, "not an absolute path");
    struct stat info{};
    if (stat(named.path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode))
      return Unusable(named, "not a directory");
    if (stat(SlicesOf(named.path).c_str(), &info) == 0) return StateRoot{named.path, true, ""};
    if (errno != ENOENT) return Unusable(named, std::strerror(errno));
    return Fail(Code::kNotFound, named.how + ": '" + base::Shown(named.path) + "' holds no slices");
  }
  // As FindStateRoot chooses, so that a reader sees what a run of the same user would see.
  const std::string shared = contract::kHostStateDir;
  const std::string own = UserFolder();
  if (base::IsDirectory(SlicesOf(shared))) return StateRoot{shared, true, ""};
  if (!own.empty() && base::IsDirectory(SlicesOf(own))) return StateRoot{own, false, ""};
  return Fail(Code::kNotFound,
              "nothing is promised on this machine: there is no slice yet (state directory " +
                  shared + ")");
}

}  // namespace tessera::node
