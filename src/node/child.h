// Work that may hang, in a process apart: a driver that does not answer, a file system that nobody
// serves, a program of somebody else.
//
// Whoever asks stays single-threaded, free of what the work leaves behind, and waits a bounded
// time. A child that is killed and does not die (state D: it waits in the kernel for what never
// answers) is left behind, holds no file of ours, and is reaped when a later call finds it dead.
//
// Thread safety: one thread; the child gets a copy of the memory, so only what fork(2) leaves
// usable.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tessera::node {

enum class ChildSpeaks {
  kByAnswer,          // work writes to the descriptor that it is given
  kByStdout,          // for a program that work becomes
  kByStdoutAndStderr  // the same, both in one pipe
};

struct ChildPlan {
  std::string what;  // names it in errors: "driver"
  std::int64_t wait_ns = 0;
  ChildSpeaks speaks = ChildSpeaks::kByAnswer;
  bool tell_waiting = false;  // a wait of more than 2 s is told to who sits at the terminal
  std::size_t most_bytes = std::size_t{1} << 20;
};

struct ChildEnd {
  std::string output;
  std::optional<int> exit_code;  // none: ended by a signal
};

// Runs `work` in a child; its result is the exit code. The child has no descriptor of the caller,
// /dev/null for the streams that it does not speak by, and dies with the caller. kDeadlineExceeded
// when it did not end within `wait_ns`, kDataLoss when it said more than `most_bytes`; either way
// it was killed.
Result<ChildEnd> RunChild(const ChildPlan& plan, const std::function<int(int)>& work);

// A child for a conversation: it sees `far` as descriptor 3 and nothing else of the caller's.
Result<pid_t> ForkAlone(const std::string& what, int far, const std::function<int(int)>& work);

// Kills a child of this process and waits a moment for its end; what does not die is left and
// reaped later. The exit code of one that had ended by itself.
std::optional<int> Bury(pid_t child);

// How a child ended; none: not within `wait_ns`.
struct Ended {
  std::optional<int> exit_code;  // none: by a signal
};
std::optional<Ended> WaitForEnd(pid_t child, std::int64_t wait_ns);

// Whether that child was left and still does not die.
bool IsLeft(pid_t child);

}  // namespace tessera::node
