#include "node/ask_child.h"

#include <unistd.h>

#include "node/child.h"

namespace tessera::node {

Result<std::string> AskChild(const std::function<std::string()>& answer, std::int64_t wait_ns) {
  ChildPlan plan;
  plan.what = "driver";
  plan.wait_ns = wait_ns;
  plan.tell_waiting = true;
  Result<ChildEnd> end = RunChild(plan, [&answer](int to) {
    const std::string text = answer();
    return write(to, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
  });
  if (!end) {
    const bool late = end.error().code == Code::kDeadlineExceeded;
    return Fail(late ? Code::kUnavailable : end.error().code, end.error().message);
  }
  if (end->output.empty())
    return Fail(Code::kUnavailable, "driver: the process that asked it died");
  return std::move(end->output);
}

}  // namespace tessera::node
