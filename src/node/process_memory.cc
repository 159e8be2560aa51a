#include "node/process_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/clock.h"
#include "base/process.h"
#include "node/child.h"

namespace tessera::node {
namespace {

// Tenants that hung in one look; more than that is one tenant of many users.
constexpr std::size_t kMostHung = 16;

using Tenant = std::pair<uid_t, std::uint64_t>;

// Of all looks of this program: who hung, and the child that was left with it.
std::map<Tenant, pid_t>& EverHung() {
  static std::map<Tenant, pid_t> hung;
  return hung;
}

struct Question {
  char path[64];
  std::uint64_t most_bytes;
};
struct Head {
  std::int32_t error;
  std::uint64_t bytes;
};

bool PutAll(int to, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = send(to, at, size, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

// In the child: one question after the other, until the other side is gone.
int Serve(int line) {
  Question question;
  while (recv(line, &question, sizeof question, MSG_WAITALL) ==
         static_cast<ssize_t>(sizeof question)) {
    Head head{};
    std::string text;
    const base::Fd file(open(question.path, O_RDONLY | O_CLOEXEC));
    if (!file.valid()) head.error = errno;
    while (head.error == 0 && text.size() < question.most_bytes) {
      // Not on the stack, which may be as small as the user likes (ulimit -s).
      constexpr std::size_t kStep = 65536;
      const std::size_t have = text.size();
      const std::size_t wanted = std::min<std::size_t>(kStep, question.most_bytes - have);
      text.resize(have + wanted);
      const ssize_t got = read(file.get(), text.data() + have, wanted);
      const int error = errno;
      text.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      if (got < 0 && error == EINTR) continue;
      if (got < 0) head.error = error;
      if (got <= 0) break;
    }
    head.bytes = text.size();
    if (!PutAll(line, &head, sizeof head) || !PutAll(line, text.data(), text.size())) return 1;
  }
  return 0;
}

// True when all of it came before the deadline.
bool GetAll(int from, void* data, std::size_t size, std::int64_t deadline) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const std::int64_t left_ms = (deadline - base::RealClock().NowNs()) / 1'000'000;
    pollfd ready{from, POLLIN, 0};
    const int polled = left_ms <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left_ms));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return false;
    const ssize_t got = recv(from, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

ProcessMemory::~ProcessMemory() { Stop(); }

ProcessMemory::Tenant ProcessMemory::TenantOf(pid_t pid) {
  const uid_t user = base::RealUser(pid).value_or(0);
  return {user, user == 0 ? base::NamespaceInode(pid, "mnt") : 0};
}

Status ProcessMemory::Start() {
  if (child_ > 0) return {};
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return FailErrno("/proc", errno);
  line_ = base::Fd(ends[0]);
  const base::Fd far(ends[1]);
  const Result<pid_t> child = ForkAlone("/proc", far.get(), Serve);
  if (!child) return Fail(child.error());
  child_ = *child;
  return {};
}

void ProcessMemory::Stop() {
  line_ = base::Fd();
  if (child_ > 0) Bury(child_);
  child_ = 0;
}

Result<std::string> ProcessMemory::Ask(pid_t pid, const char* file, std::size_t most_bytes) {
  Question question{};
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  if (path.size() >= sizeof question.path) return Fail(Code::kInvalidArgument, path);
  std::memcpy(question.path, path.c_str(), path.size());
  question.most_bytes = most_bytes;
  const std::int64_t deadline = base::RealClock().NowNs() + kMemoryWaitNs;
  Head head{};
  std::string text;
  bool whole = PutAll(line_.get(), &question, sizeof question) &&
               GetAll(line_.get(), &head, sizeof head, deadline) && head.bytes <= most_bytes;
  if (whole) {
    text.resize(head.bytes);
    whole = GetAll(line_.get(), text.data(), text.size(), deadline);
  }
  if (!whole) {
    Stop();
    return Fail(Code::kDeadlineExceeded, path + ": does not answer");
  }
  if (head.error != 0) return FailErrno(path, head.error);
  return text;
}

bool ProcessMemory::Hangs(const Tenant& tenant) const {
  if (hung_.size() >= kMostHung || hung_.contains(tenant)) return true;
  const auto before = EverHung().find(tenant);
  if (before == EverHung().end()) return false;
  if (IsLeft(before->second)) return true;
  EverHung().erase(before);
  return false;
}

Result<std::string> ProcessMemory::Read(pid_t pid, const char* file, std::size_t most_bytes) {
  const bool asks = !hung_.empty() || !EverHung().empty();
  if (asks && Hangs(TenantOf(pid))) {
    return Fail(Code::kDeadlineExceeded, "pid " + std::to_string(pid) + ": its tenant hangs");
  }
  if (Status started = Start(); !started) return Fail(started.error());
  const pid_t child = child_;
  Result<std::string> text = Ask(pid, file, most_bytes);
  if (text && text->empty()) {
    const pid_t thread = base::LivingThread(pid);
    if (thread != pid) text = Ask(thread, file, most_bytes);
  }
  if (!text && text.error().code == Code::kDeadlineExceeded) {
    hung_.insert(TenantOf(pid));
    EverHung()[TenantOf(pid)] = child;
  }
  return text;
}

}  // namespace tessera::node
