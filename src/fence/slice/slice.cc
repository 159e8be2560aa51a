#include "slice/slice.h"

#include <cerrno>
#include <cstddef>

#include "contract/names.h"
#include "os/os.h"
#include "slice/environment.h"
#include "slice/text.h"

namespace tessera::fence {

namespace detail {
constinit Own g_own = {};
Mode g_attached = Mode::kUnknown;
bool g_wiped = false;
Slice g_slice;
}  // namespace detail

namespace {

using contract::LayoutFault;
using detail::g_own;
using detail::g_slice;

os::SpinMutex g_attach_lock;
constexpr std::uint64_t kPatienceNs = 1'000'000'000;

void Problem(Text text, std::string_view file, const LayoutFault& fault) {
  text << file << ": " << fault.field << " is " << fault.value << ", legal is " << fault.legal;
}

// A first touch that reads maps sixteen pages of a file, one that writes a single page. Nothing is
// changed: the header and the first slots are where every process looks.
void TouchByWriting(void* ledger, long bytes) {
  for (const std::size_t at :
       {offsetof(contract::LedgerFile, header), offsetof(contract::LedgerFile, slots)}) {
    if (ledger == nullptr || bytes < static_cast<long>(at + sizeof(std::uint64_t))) return;
    contract::FetchAdd(*reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(ledger) + at),
                       std::uint64_t{0});
  }
}

// Put there by root, by this user or by whoever made the view, and nobody else can change it: in
// the machine's own /run/tessera every user may put a policy.
bool OfNobodyElse(int file) {
  os::FileFacts facts;
  if (os::OnReadOnlyMount(file)) return true;
  return os::Describe(file, &facts) && (facts.owner == 0 || facts.owner == os::UserId()) &&
         (facts.mode & 022) == 0;
}

struct Folder {
  explicit Folder(const char* path) : descriptor(os::OpenFolder(path)) {}
  ~Folder() {
    if (descriptor >= 0) os::Close(descriptor);
  }
  int descriptor;
};

// kUnknown: there is no policy in that directory, or none that is to be believed.
Mode AttachDirectory(std::string_view directory, Slice& slice) {
  char policy_path[512], ledger_path[512];
  Text policy_text(policy_path, sizeof policy_path), ledger_text(ledger_path, sizeof ledger_path);
  policy_text << directory << "/" << contract::kPolicyFile;
  ledger_text << directory << "/" << contract::kLedgerFile;
  Text problem(slice.problem, sizeof slice.problem);
  if (ledger_text.full()) {
    problem << contract::kEnvSliceDir << " is too long, legal is up to 500 bytes";
    return Mode::kRefused;
  }
  char folder_path[512];
  Text(folder_path, sizeof folder_path) << directory;
  const Folder folder(folder_path);
  if (folder.descriptor < 0 || !OfNobodyElse(folder.descriptor)) return Mode::kUnknown;
  const int policy = os::OpenIn(folder.descriptor, contract::kPolicyFile, os::Access::kRead);
  if (policy == -ENOENT) return Mode::kUnknown;
  if (policy < 0) {
    problem << policy_path << " cannot be opened (errno " << static_cast<std::uint64_t>(-policy)
            << "), legal is a readable policy";
    return Mode::kRefused;
  }
  if (!OfNobodyElse(policy)) {
    os::Close(policy);
    problem << policy_path
            << " may be changed by others, legal is a policy of root or of this user";
    return Mode::kRefused;
  }
  const long policy_bytes = os::FileBytes(policy);
  void* policy_map =
      policy_bytes < 512
          ? nullptr
          : os::MapShared(policy, static_cast<std::size_t>(policy_bytes), os::Access::kRead);
  os::Close(policy);
  const LayoutFault policy_fault = contract::OpenPolicy(
      policy_map, policy_bytes < 0 ? 0 : static_cast<std::uint64_t>(policy_bytes), &slice.policy);
  if (policy_fault.field != nullptr) {
    Problem(problem, policy_path, policy_fault);
    return Mode::kRefused;
  }
  const int ledger = os::OpenIn(folder.descriptor, contract::kLedgerFile, os::Access::kReadWrite);
  if (ledger < 0) {
    problem << ledger_path << " cannot be opened (errno " << static_cast<std::uint64_t>(-ledger)
            << "), legal is a ledger that this process may write";
    return Mode::kRefused;
  }
  const long ledger_bytes = os::FileBytes(ledger);
  void* ledger_map =
      ledger_bytes < 512
          ? nullptr
          : os::MapShared(ledger, static_cast<std::size_t>(ledger_bytes), os::Access::kReadWrite);
  TouchByWriting(ledger_map, ledger_bytes);
  RememberLedger(slice, ledger_path, ledger);
  os::Close(ledger);
  const LayoutFault ledger_fault = contract::OpenLedger(
      ledger_map, ledger_bytes < 0 ? 0 : static_cast<std::uint64_t>(ledger_bytes), &slice.ledger);
  if (ledger_fault.field != nullptr) {
    Problem(problem, ledger_path, ledger_fault);
    return Mode::kRefused;
  }
  if (slice.ledger.card_count() < slice.policy.card_count()) {
    Problem(problem, ledger_path,
            {"card_count", slice.ledger.card_count(), "at least that of the policy"});
    return Mode::kRefused;
  }
  return Mode::kFenced;
}

Mode Find(Slice& slice) {
  if (const Mode mode = AttachDirectory(contract::kSliceDir, slice); mode != Mode::kUnknown)
    return mode;
  if (const char* directory = os::Environment(contract::kEnvSliceDir); directory != nullptr) {
    const Mode mode = AttachDirectory(directory, slice);
    if (mode != Mode::kUnknown) return mode;
    Text(slice.problem, sizeof slice.problem) << (Text::Quoted{contract::kEnvSliceDir, directory})
                                              << " holds no policy that only root or this user may "
                                                 "change, legal is a slice directory";
    return Mode::kRefused;
  }
  return AttachEnvironment(slice);
}

// The page is empty though the slice is known: this is a child that nobody was told of. One thread
// puts it in order.
Mode InUnseenChild() {
  std::uint32_t nobody = 0;
  if (__atomic_compare_exchange_n(&g_own.forgetting, &nobody, 1u, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE))
    detail::ForgetParent();
  Mode mode;
  const std::uint64_t until = os::MonotonicNs() + kPatienceNs;
  do {
    __atomic_load(&g_own.mode, &mode, __ATOMIC_ACQUIRE);
    if (mode != Mode::kUnknown) return mode;
    os::SleepNs(1'000'000);
  } while (os::MonotonicNs() < until);
  return Mode::kRefused;
}

}  // namespace

Mode detail::AttachSlow() {
  Mode mode;
  __atomic_load(&g_attached, &mode, __ATOMIC_ACQUIRE);
  if (mode != Mode::kUnknown) return InUnseenChild();
  if (!g_attach_lock.LockFor(kPatienceNs)) return Mode::kRefused;
  __atomic_load(&g_own.mode, &mode, __ATOMIC_ACQUIRE);
  if (mode == Mode::kUnknown) {
    mode = Find(g_slice);
    if (mode == Mode::kRefused) {
      // Nothing may lead into half a slice: without a policy every card is foreign, and refused.
      g_slice.policy = contract::PolicyView();
      g_slice.ledger = contract::LedgerView();
    }
    g_wiped = os::WipeInChildren(&g_own, sizeof g_own);
    // In this order: who finds the slice known and the page empty is a child.
    __atomic_store(&g_own.mode, &mode, __ATOMIC_RELEASE);
    __atomic_store(&g_attached, &mode, __ATOMIC_RELEASE);
  }
  g_attach_lock.Unlock();
  return mode;
}

void RememberLedger(Slice& slice, std::string_view path, int descriptor) {
  os::FileFacts facts;
  if (!os::Describe(descriptor, &facts)) return;
  slice.ledger_inode = facts.inode;
  slice.ledger_device = facts.device;
  Text(slice.ledger_path, sizeof slice.ledger_path) << path;
}

int OpenLedgerAgain() {
  if (g_slice.ledger_inode == 0) return -1;
  const int file = os::Open(g_slice.ledger_path, os::Access::kReadWrite);
  os::FileFacts facts;
  if (file < 0) return file;
  if (os::Describe(file, &facts) && facts.inode == g_slice.ledger_inode &&
      facts.device == g_slice.ledger_device)
    return file;
  os::Close(file);
  return -1;
}

const char* SliceProblem() {
  if (AttachSlice() != Mode::kRefused) return "";
  return g_slice.problem[0] != '\0' ? g_slice.problem : "the slice could not be attached in time";
}

}  // namespace tessera::fence
