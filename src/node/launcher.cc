#include "node/launcher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "base/plain_text.h"
#include "contract/names.h"
#include "node/child.h"
#include "node/program.h"
#include "node/sandbox.h"
#include "node/slice_files.h"
#include "node/slice_folder.h"

namespace tessera::node {
namespace {

// Longer than the loader is waited for; a mount below /etc that never answers ends the trial.
constexpr std::int64_t kTrialNs = 15'000'000'000;

// What a trial in a child found, before this process does what cannot be undone.
struct Trial {
  bool view_built = false;
  bool fence_loads = false;
  std::string why;  // when the view was not built
};

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

Status EnterAndBuild(const SandboxPlan& sandbox) {
  if (Status entered = EnterNamespace(); !entered) return entered;
  return BuildView(sandbox);
}

// In a child: builds the view, then asks the program's loader whether the fence is in.
Trial Try(const SandboxPlan& sandbox, const ProgramKind& kind) {
  ChildPlan plan;
  plan.what = "the trial of the namespace";
  plan.wait_ns = kTrialNs;
  plan.tell_waiting = true;
  const Result<ChildEnd> end = RunChild(plan, [&](int to) {
    std::string answer;
    if (Status built = EnterAndBuild(sandbox); !built) {
      answer = "-" + built.error().message;
    } else if (Status dropped = DropNamespaceCapabilities(); !dropped) {
      answer = "-" + dropped.error().message;
    } else {
      answer = kind.interpreter.empty() || LoaderLoads(kind, kLibraryInside) ? "+" : "0";
    }
    return write(to, answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()) ? 0 : 1;
  });
  Trial trial;
  if (!end || end->output.empty()) {
    trial.why = end ? "the trial ended without an answer" : end.error().message;
    return trial;
  }
  trial.view_built = end->output[0] != '-';
  trial.fence_loads = end->output[0] == '+';
  if (!trial.view_built) trial.why = end->output.substr(1);
  return trial;
}

// A path for LD_PRELOAD that stays as long as the slice: a copy beside the policy, or the installed
// file where the state directory may not hold code.
Result<std::string> LibraryForEnvironment(const SliceRecord& record, const std::string& library) {
  constexpr std::size_t kMostLibraryBytes = 64 << 20;
  std::string path = library;
  struct statvfs info{};
  if (statvfs(record.directory.c_str(), &info) == 0 && (info.f_flag & ST_NOEXEC) == 0) {
    Result<std::string> text = base::ReadFile(library, kMostLibraryBytes);
    if (!text) return FailIn("fence library", text.error());
    path = record.directory + "/" + contract::kFenceLibrary;
    if (Status put = base::CreateWholeFile(path, *text, text->size(), 0755); !put)
      return Fail(put.error());
  }
  if (path.find_first_of(" :") != std::string::npos) {
    return Fail(Code::kFailedPrecondition,
                "fence library: '" + path + "' has a blank or colon, which LD_PRELOAD cannot name");
  }
  return path;
}

// Without a namespace there is no `su` to serve: the ledger stands open to its user only.
Status OpenLedgerToItsUser(const SliceRecord& record) {
  const Result<base::Folder> slice = OpenSlice(record);
  if (!slice) return Fail(slice.error());
  if (!slice->HasSub(kGuardedFolder)) return {};
  const std::string guarded = std::string(kGuardedFolder) + "/" + contract::kLedgerFile;
  if (Status moved = slice->Rename(guarded, contract::kLedgerFile); !moved) return moved;
  const Result<base::Fd> ledger = slice->OpenFile(contract::kLedgerFile, O_RDONLY);
  if (!ledger) return Fail(ledger.error());
  if (fchmod(ledger->get(), 0644) != 0) return FailErrno(slice->path(), errno);
  return slice->RemoveTree(kGuardedFolder);
}

Status FenceByEnvironment(const SliceRecord& record, const LaunchPlan& plan) {
  if (Status opened = OpenLedgerToItsUser(record); !opened) return opened;
  Result<std::string> library = LibraryForEnvironment(record, plan.library);
  if (!library) return Fail(library.error());
  std::string preload = *library;
  const char* before = getenv("LD_PRELOAD");
  if (before != nullptr && before[0] != '\0') preload += std::string(":") + before;
  setenv("LD_PRELOAD", preload.c_str(), 1);
  setenv(contract::kEnvSliceDir, record.directory.c_str(), 1);
  return {};
}

// As the fence believes a policy (src/fence/slice/slice.cc): every user may put one into the
// machine's own /run/tessera.
bool OfNobodyElse(const base::Folder& folder) {
  struct statvfs info{};
  if (fstatvfs(folder.fd(), &info) == 0 && (info.f_flag & ST_RDONLY) != 0) return true;
  return (folder.owner() == 0 || folder.owner() == geteuid()) && (folder.mode() & 022) == 0;
}

// Everything up to exec; what fails here leaves nothing started.
Status Prepare(Store& store, SliceRecord& record, const LaunchPlan& plan) {
  ProgramKind kind = InspectProgram(plan.program);
  if (!kind.fenceable) {
    std::string what = plan.command[0] + " " + kind.reason + ": the fence cannot get into it";
    if (plan.require_fence) return Fail(Code::kFailedPrecondition, "--require-fence: " + what);
    base::Say(what + " (only into dynamically linked programs that it starts)");
    kind.interpreter.clear();
  }
  SandboxPlan sandbox{record.directory, ParentOf(record.directory), plan.library};
  Trial trial = Try(sandbox, kind);
  if (trial.view_built && !trial.fence_loads) {
    std::string what = "the fence does not load into " + plan.command[0] + " (" + kind.interpreter +
                       " leaves it out)";
    if (plan.require_fence) return Fail(Code::kFailedPrecondition, "--require-fence: " + what);
    base::Say(what);
  }
  if (!trial.view_built) {
    if (plan.require_fence) {
      return Fail(Code::kFailedPrecondition,
                  "--require-fence: no mount namespace to be had: " + trial.why);
    }
    base::Say(
        "fenced by LD_PRELOAD only, which env -i and setuid programs escape: no mount namespace to "
        "be had: " +
        trial.why);
    record.fencing = Fencing::kEnvironment;
    if (Status fenced = FenceByEnvironment(record, plan); !fenced) return fenced;
    return store.Update(record);
  }
  const std::uint64_t before = base::NamespaceInode(getpid(), "user");
  if (Status entered = EnterNamespace(); !entered) return entered;
  record.mount_namespace = base::NamespaceInode(getpid(), "mnt");
  const std::uint64_t user_namespace = base::NamespaceInode(getpid(), "user");
  if (user_namespace != before) record.user_namespace = user_namespace;
  if (Status updated = store.Update(record); !updated) return updated;
  if (Status built = BuildView(sandbox); !built) return built;
  return DropNamespaceCapabilities();
}

// As execvp(3): a text without a #! line is the shell's. A broken binary is not.
Error Execute(const LaunchPlan& plan) {
  std::vector<char*> arguments;
  for (const std::string& word : plan.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(plan.program.c_str(), arguments.data());
  int error = errno;
  if (error == ENOEXEC && !IsElf(plan.program)) {
    arguments[0] = const_cast<char*>(plan.program.c_str());
    arguments.insert(arguments.begin(), const_cast<char*>("sh"));
    execv("/bin/sh", arguments.data());
    error = errno;
  }
  return FailErrno("command: '" + base::Shown(plan.command[0]) + "'", error).value();
}

}  // namespace

Result<std::string> FindFenceLibrary(const std::string& flag) {
  std::vector<std::string> candidates;
  if (!flag.empty()) {
    candidates = {flag};
  } else {
    Result<std::string> self = base::OwnExecutable();
    if (!self) return Fail(self.error());
    std::string folder = ParentOf(*self);
    candidates = {ParentOf(folder) + "/lib/tessera/" + contract::kFenceLibrary,
                  ParentOf(folder) + "/lib/" + contract::kFenceLibrary};
  }
  for (const std::string& candidate : candidates) {
    if (access(candidate.c_str(), R_OK) == 0) return candidate;
  }
  return Fail(Code::kUnavailable, "fence library: '" + candidates.front() +
                                      "' cannot be read: " + std::strerror(errno));
}

Result<std::string> SurroundingSlice() {
  std::vector<std::string> folders = {contract::kSliceDir};
  if (const char* variable = getenv(contract::kEnvSliceDir); variable != nullptr)
    folders.emplace_back(variable);
  for (const std::string& path : folders) {
    const Result<base::Folder> folder = base::Folder::Open(path);
    if (folder && !OfNobodyElse(*folder)) continue;
    Result<PolicyView> policy = ReadPolicy(path + "/" + contract::kPolicyFile);
    if (policy) return base::Shown(policy->slice_name);
    if (policy.error().code != Code::kNotFound) return std::string("(unreadable)");
  }
  return Fail(Code::kNotFound, "in no slice");
}

LaunchFailure Launch(Store& store, SliceRecord record, const LaunchPlan& plan) {
  // Where the slice can be given back from once its folder is hidden from this process.
  base::Fd slices(open(ParentOf(record.directory).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Status prepared = Prepare(store, record, plan);
  LaunchFailure failure;
  const bool interrupted = plan.signals != nullptr && plan.signals->Waiting();
  if (prepared && interrupted) {
    failure.error = {Code::kFailedPrecondition, "interrupted before the command was started"};
  } else if (prepared) {
    if (plan.signals != nullptr) plan.signals->Release();
    failure = {Execute(plan), true};
  } else {
    failure.error = prepared.error();
  }
  record.directory = "/proc/self/fd/" + std::to_string(slices.get()) + "/" + record.slice.id;
  if (Status removed = store.Remove(record); !removed)
    base::Detail("not given back: " + removed.error().message);
  if (plan.signals != nullptr) plan.signals->Release();  // an interrupted launch ends here
  return failure;
}

}  // namespace tessera::node
