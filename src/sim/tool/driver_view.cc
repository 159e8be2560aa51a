#include "sim/tool/driver_view.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "base/fd.h"
#include "base/files.h"

namespace tessera::sim {
namespace {

constexpr char kFolder[] = "/run/tessera-sim";
constexpr char kLibraries[] = "/run/tessera-sim/lib";
constexpr char kDevices[] = "/run/tessera-sim/devices";  // /dev as it was, where it is rebuilt
constexpr char kDevicesPtmx[] = "/run/tessera-sim/devices/ptmx";
constexpr char kCache[] = "/etc/ld.so.cache";
constexpr std::size_t kMostLibraryBytes = 256 << 20;
constexpr std::size_t kMostEntries = 4096;

std::string Path(const base::Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

Status Mount(const std::string& from, const std::string& to, const char* type, unsigned long flags,
             const char* options) {
  if (mount(from.c_str(), to.c_str(), type, flags, options) != 0)
    return FailErrno("mount on " + to, errno);
  return {};
}

Status Put(const std::string& path, std::string_view text, mode_t mode) {
  return base::CreateWholeFile(path, text, std::max<std::size_t>(text.size(), 1), mode);
}

Status PutEmpty(const std::string& path, mode_t mode) {
  base::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, mode));
  if (!fd.valid()) return FailErrno(path, errno);
  fchmod(fd.get(), mode);
  return {};
}

Status WriteTo(const std::string& path, const std::string& text) {
  base::Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid() ||
      write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return FailErrno(path, errno);
  }
  return {};
}

// In: whether a user namespace was needed.
Result<bool> EnterNamespace() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  bool own_users = false;
  if (uid != 0 || unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return FailErrno("user namespace", errno);
    own_users = true;
    const std::string user = std::to_string(uid), group = std::to_string(gid);
    for (const auto& [file, text] : {std::pair<const char*, std::string>{"setgroups", "deny"},
                                     {"uid_map", user + " " + user + " 1"},
                                     {"gid_map", group + " " + group + " 1"}}) {
      if (Status written = WriteTo(std::string("/proc/self/") + file, text); !written)
        return Fail(written.error());
    }
  }
  if (Status slave = Mount("", "/", nullptr, MS_REC | MS_SLAVE, nullptr); !slave)
    return Fail(slave.error());
  return own_users;
}

// Replaces `folder` by one in memory that has the same entries, so that some can be added.
Status RebuildFolder(const std::string& folder, const char* options) {
  base::Fd before(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!before.valid()) return FailErrno(folder, errno);
  Result<std::vector<std::string>> names = base::ListDirectory(folder);
  if (!names) return Fail(names.error());
  if (names->size() > kMostEntries)
    return Fail(Code::kResourceExhausted, folder + ": too many entries");
  if (Status mounted = Mount("tessera-sim", folder, "tmpfs", MS_NOSUID, options); !mounted)
    return mounted;
  for (const std::string& name : *names) {
    const std::string from = Path(before) + "/" + name, to = folder + "/" + name;
    struct stat info{};
    if (lstat(from.c_str(), &info) != 0) continue;  // gone meanwhile
    if (name == "ptmx" && S_ISCHR(info.st_mode)) {
      // The kernel looks for `pts` beside the file that was opened, in the mount that it was opened
      // in: a file bound alone has none.
      if (symlink(kDevicesPtmx, to.c_str()) != 0) return FailErrno(to, errno);
      continue;
    }
    if (S_ISLNK(info.st_mode)) {
      char target[PATH_MAX];
      const ssize_t length = readlink(from.c_str(), target, sizeof target - 1);
      if (length <= 0) continue;
      target[length] = 0;
      if (symlink(target, to.c_str()) != 0) return FailErrno(to, errno);
      continue;
    }
    Status made = S_ISDIR(info.st_mode) ? base::MakeDirectory(to, 0755) : PutEmpty(to, 0644);
    if (made) made = Mount(from, to, nullptr, MS_BIND | MS_REC, nullptr);
    if (!made) return made;
  }
  return {};
}

// The folder of the C library: the one that the loader always searches.
Result<std::string> DefaultLibraryFolder() {
  Dl_info info{};
  char real[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&getpid), &info) == 0 || info.dli_fname == nullptr ||
      realpath(info.dli_fname, real) == nullptr) {
    return Fail(Code::kUnavailable, "the folder of the C library is not to be found");
  }
  const std::string path = real;
  return path.substr(0, path.rfind('/'));
}

Status PutLibraries(const std::string& from) {
  if (Status made = base::MakeDirectory(kLibraries, 0755); !made) return made;
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    // Copied: a rebuild does not touch running programs, and the build may lie where other users
    // can't go.
    Result<std::string> library = base::ReadFile(from + "/" + name, kMostLibraryBytes);
    if (!library) return Fail(library.error());
    if (Status put = Put(std::string(kLibraries) + "/" + name, *library, 0755); !put) return put;
  }
  // Some programs open the development name.
  if (symlink("libcuda.so.1", (std::string(kLibraries) + "/libcuda.so").c_str()) != 0)
    return FailErrno("libcuda.so", errno);
  return {};
}

Status PutNode(const base::Fd& node) {
  const std::string at = std::string(kFolder) + "/node";
  if (Status made = PutEmpty(at, 0666); !made) return made;
  return Mount(Path(node), at, nullptr, MS_BIND, nullptr);
}

Status OverlayLibraries() {
  Result<std::string> folder = DefaultLibraryFolder();
  if (!folder) return Fail(folder.error());
  const std::string layers = std::string("lowerdir=") + kLibraries + ":" + *folder;
  return Mount("tessera-sim", *folder, "overlay", MS_RDONLY, layers.c_str());
}

// Programs that ask `ldconfig -p` where the driver is look into the cache only. Without ldconfig
// they are on their own, and the loader finds the libraries all the same.
void RefreshCache() {
  const std::string cache = std::string(kFolder) + "/ld.so.cache";
  const pid_t child = fork();
  if (child == 0) {
    const int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) dup2(nothing, fd);
    execl("/sbin/ldconfig", "ldconfig", "-X", "-C", cache.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return;
  chmod(cache.c_str(), 0644);
  mount(cache.c_str(), kCache, nullptr, MS_BIND, nullptr);
}

// /dev with more names: an overlay, so that terminals work (the kernel looks for `pts` beside the
// /dev/ptmx that was opened, which is nowhere for a bound file). Not in a user namespace, where
// device files of a new mount can't be opened.
bool OverlayDevices(const std::string& more) {
  base::Fd before(open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat whole{};
  if (!before.valid() || fstat(before.get(), &whole) != 0) return false;
  Result<std::vector<std::string>> names = base::ListDirectory("/dev");
  if (!names) return false;
  const std::string layers = "lowerdir=" + more + ":/dev";
  if (Status mounted = Mount("tessera-sim", "/dev", "overlay", MS_NOSUID, layers.c_str()); !mounted)
    return false;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) close(null);
  bool good = null >= 0;
  for (const std::string& name : *names) {  // what is mounted below /dev: pts, shm, ...
    const std::string from = Path(before) + "/" + name;
    struct stat info{};
    if (!good || lstat(from.c_str(), &info) != 0 || info.st_dev == whole.st_dev) continue;
    good = Mount(from, "/dev/" + name, nullptr, MS_BIND | MS_REC, nullptr).has_value();
  }
  if (!good) umount2("/dev", MNT_DETACH);
  return good;
}

// jax and container tools look for these files before they try the driver. A machine with a real
// driver has them.
Status PutDeviceFiles(int cards) {
  if (access("/dev/nvidiactl", F_OK) == 0) return {};
  const auto put_in = [cards](const std::string& folder) -> Status {
    for (const char* name : {"/nvidiactl", "/nvidia-uvm"}) {
      if (Status put = PutEmpty(folder + name, 0666); !put) return put;
    }
    for (int card = 0; card < cards; ++card) {
      if (Status put = PutEmpty(folder + "/nvidia" + std::to_string(card), 0666); !put) return put;
    }
    return {};
  };
  const std::string more = std::string(kFolder) + "/dev";
  if (Status made = base::MakeDirectory(more, 0755); !made) return made;
  if (Status put = put_in(more); !put) return put;
  if (OverlayDevices(more)) return {};
  if (Status made = base::MakeDirectory(kDevices, 0755); !made) return made;
  if (Status kept = Mount("/dev", kDevices, nullptr, MS_BIND | MS_REC, nullptr); !kept) return kept;
  if (Status rebuilt = RebuildFolder("/dev", "mode=0755,size=1m"); !rebuilt) return rebuilt;
  return put_in("/dev");
}

// What the user namespace gave must not reach the program: it is to be the user that it was.
Status DropCapabilities() {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return FailErrno("capabilities", errno);
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) return FailErrno("capabilities", errno);
  return {};
}

}  // namespace

Status EnterDriverView(const DriverView& view) {
  char working_folder[PATH_MAX];
  const bool has_folder = getcwd(working_folder, sizeof working_folder) != nullptr;
  Result<bool> own_users = EnterNamespace();
  if (!own_users) return Fail(own_users.error());
  // Opened in the new namespace, since mounts of another one can't be bound, and before anything is
  // hidden.
  base::Fd node(open(view.node.c_str(), O_PATH | O_CLOEXEC));
  if (!node.valid()) return FailErrno(view.node, errno);
  base::Fd libraries(open(view.libraries.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!libraries.valid()) return FailErrno(view.libraries, errno);
  // The mount point stays on the host when root made it; for others /run is rebuilt in memory.
  if (!base::IsDirectory(kFolder) && mkdir(kFolder, 0755) != 0) {
    if (Status rebuilt = RebuildFolder("/run", "mode=0755,size=16m"); !rebuilt) return rebuilt;
    if (Status made = base::MakeDirectory(kFolder, 0755); !made) return made;
  }
  if (Status mounted =
          Mount("tessera-sim", kFolder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=512m");
      !mounted) {
    return mounted;
  }
  for (const Status& done : {PutLibraries(Path(libraries)), PutNode(node)}) {
    if (!done) return done;
  }
  if (Status overlaid = OverlayLibraries(); !overlaid) return overlaid;
  if (!view.trial) RefreshCache();
  if (Status put = PutDeviceFiles(view.cards); !put) return put;
  if (has_folder && chdir(working_folder) != 0) return FailErrno(working_folder, errno);
  return *own_users ? DropCapabilities() : Status{};
}

}  // namespace tessera::sim
