#include "node/sandbox.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "base/fd.h"
#include "base/files.h"
#include "contract/names.h"
#include "node/mounts.h"
#include "node/slice_files.h"

namespace tessera::node {
namespace {

constexpr char kPreload[] = "/etc/ld.so.preload";
constexpr char kPreloadName[] = "ld.so.preload";
constexpr std::size_t kMostLibraryBytes = 64 << 20;
constexpr std::size_t kMostPreloadBytes = 64 << 10;

// Set while this process owns its user namespace.
bool g_user_namespace = false;

std::string Inside(const char* name) { return std::string(contract::kSliceDir) + "/" + name; }

Status WriteOnce(const std::string& path, const std::string& text) {
  base::Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid() ||
      write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return FailErrno(path, errno);
  }
  return {};
}

Status PutFile(const std::string& path, std::string_view text, mode_t mode) {
  return base::CreateWholeFile(path, text, std::max<std::size_t>(text.size(), 1), mode);
}

// The mount point /run/tessera, also where nobody may make it on the host.
Status MakeMountPoint() {
  if (base::IsDirectory(contract::kSliceDir)) return {};
  if (mkdir(contract::kSliceDir, 0755) == 0) return {};
  if (Status rebuilt = RebuildFolder("/run"); !rebuilt) return rebuilt;
  return base::MakeDirectory(contract::kSliceDir, 0755);
}

// Our line first, then what the machine preloads already.
Status PutPreload() {
  std::string text = std::string(kLibraryInside) + "\n";
  Result<std::string> before = base::ReadFile(kPreload, kMostPreloadBytes);
  if (before) text += *before;
  if (!before && before.error().code != Code::kNotFound) return Fail(before.error());

  const std::string folder = Inside("etc");
  if (Status made = base::MakeDirectory(folder, 0755); !made) return made;
  const std::string file = folder + "/" + kPreloadName;
  if (Status put = base::WriteFileAtomic(file, text, 0644); !put) return put;
  if (before) return BindFile(file, kPreload, true);
  if (OverlayBelow("/etc", folder)) return {};
  // No overlay here (older kernel, stacked too deeply, locked mounts below /etc): the same by
  // binds.
  if (Status rebuilt = RebuildFolder("/etc"); !rebuilt) return rebuilt;
  return base::WriteFileAtomic(kPreload, text, 0644);
}

bool BeginsWith(const std::string& path, const std::string& folder) {
  return path == folder || path.compare(0, folder.size() + 1, folder + "/") == 0;
}

}  // namespace

Status EnterNamespace() {
  uid_t uid = geteuid();
  gid_t gid = getegid();
  if (uid == 0) {
    if (unshare(CLONE_NEWNS) == 0) return MakeTreeSlave();
    if (errno != EPERM) return FailErrno("mount namespace", errno);
  }
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return FailErrno("user namespace", errno);
  g_user_namespace = true;
  if (Status written = WriteOnce("/proc/self/setgroups", "deny"); !written)
    return FailIn("user namespace", written.error());
  std::string ids = std::to_string(uid);
  if (Status written = WriteOnce("/proc/self/uid_map", ids + " " + ids + " 1"); !written) {
    return FailIn("user namespace", written.error());
  }
  ids = std::to_string(gid);
  if (Status written = WriteOnce("/proc/self/gid_map", ids + " " + ids + " 1"); !written) {
    return FailIn("user namespace", written.error());
  }
  return MakeTreeSlave();
}

Status BuildView(const SandboxPlan& plan) {
  char working_folder[PATH_MAX];
  bool has_folder = getcwd(working_folder, sizeof working_folder) != nullptr;

  // Everything of the host that goes in is opened before it is hidden.
  const Result<base::Folder> slice = base::Folder::Open(plan.slice_directory);
  if (!slice) return Fail(slice.error());
  const Result<base::Fd> policy = slice->OpenFile(contract::kPolicyFile, O_PATH);
  if (!policy) return Fail(policy.error());
  const Result<base::Fd> ledger = OpenLedger(*slice, O_PATH);
  if (!ledger) return Fail(ledger.error());
  Result<std::string> library = base::ReadFile(plan.library, kMostLibraryBytes);
  if (!library) return FailIn("fence library", library.error());

  if (Status made = MakeMountPoint(); !made) return made;
  if (!BeginsWith(plan.slices_folder, contract::kSliceDir)) {
    if (Status hidden = MountTmpfs(plan.slices_folder, "mode=0555,size=4k"); !hidden) return hidden;
    if (Status closed = MakeReadOnly(plan.slices_folder); !closed) return closed;
  }
  if (Status mounted = MountTmpfs(contract::kSliceDir, "mode=0755,size=128m"); !mounted)
    return mounted;
  // A copy that lives as long as the namespace: replacing the installed file never touches running
  // programs, and a host whose /run is mounted noexec does not matter.
  if (Status put = PutFile(kLibraryInside, *library, 0755); !put) return put;
  for (const char* name : {contract::kPolicyFile, contract::kLedgerFile}) {
    if (Status put = PutFile(Inside(name), "", 0644); !put) return put;
  }
  auto path_of = [](const base::Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); };
  if (Status bound = BindFile(path_of(*policy), Inside(contract::kPolicyFile), true); !bound)
    return bound;
  if (Status bound = BindFile(path_of(*ledger), Inside(contract::kLedgerFile), false); !bound)
    return bound;
  if (Status put = PutPreload(); !put) return put;
  if (Status closed = MakeReadOnly(contract::kSliceDir); !closed) return closed;

  // The folder that this process stands in may lie under what was mounted over.
  if (has_folder && chdir(working_folder) != 0) return FailErrno(working_folder, errno);
  return {};
}

Status DropNamespaceCapabilities() {
  if (!g_user_namespace) return {};
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return FailErrno("capabilities", errno);
  }
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) return FailErrno("capabilities", errno);
  return {};
}

}  // namespace tessera::node
