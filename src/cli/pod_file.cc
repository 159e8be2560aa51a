#include "cli/pod_file.h"

#include <unistd.h>

#include "base/files.h"
#include "base/plain_text.h"

namespace tessera::cli {

Result<model::PodContainer> ReadPodFile(const std::string& argument) {
  std::string path = argument;
  std::string container;
  const std::size_t colon = argument.rfind(':');
  if (colon != std::string::npos && access(argument.c_str(), F_OK) != 0) {
    path = argument.substr(0, colon);
    container = argument.substr(colon + 1);
    if (container.empty()) {
      return Fail(Code::kInvalidArgument, "--file: '" + base::Shown(argument) +
                                              "': the container's name is missing after ':'");
    }
  }
  const Result<std::string> text = base::ReadFile(path, model::kMaxPodBytes);
  if (!text) {
    return Fail(Code::kInvalidArgument, "--file: " + text.error().message +
                                            "; legal is a readable YAML manifest of at most 1 MiB");
  }
  Result<model::PodContainer> pod = model::ReadPodContainer(*text, container);
  if (!pod) return FailIn(path, pod.error());
  return pod;
}

Result<Asked> ReadAsked(const node::RequestText& text, const std::string& file,
                        const std::vector<std::string>& command) {
  Asked asked;
  asked.command = command;
  if (file.empty()) {
    Result<node::NewSlice> wanted = node::ParseRequest(text, command);
    if (!wanted) return Fail(wanted.error());
    asked.wanted = std::move(*wanted);
    return asked;
  }
  Result<model::PodContainer> pod = ReadPodFile(file);
  if (!pod) return Fail(pod.error());
  if (asked.command.empty()) asked.command = pod->command;
  if (asked.command.empty()) {
    return Fail(Code::kInvalidArgument, "command: missing: container '" +
                                            base::Shown(pod->container) +
                                            "' names none; give it after --");
  }
  if (text.name.empty() && model::CheckName("name", pod->container)) {
    pod->request.name = pod->container;
  }
  Result<node::NewSlice> wanted = node::ParseRequest(text, asked.command, &pod->request);
  if (!wanted) return Fail(wanted.error());
  asked.wanted = std::move(*wanted);
  return asked;
}

}  // namespace tessera::cli
