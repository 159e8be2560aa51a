#include "cli/pod_file.h"

#include <unistd.h>

#include "base/files.h"

namespace tessera::cli {

Result<model::PodContainer> ReadPodFile(const std::string& argument) {
  std::string path = argument;
  std::string container;
  const std::size_t colon = argument.rfind(':');
  if (colon != std::string::npos && access(argument.c_str(), F_OK) != 0) {
    path = argument.substr(0, colon);
    container = argument.substr(colon + 1);
    if (container.empty()) {
      return Fail(Code::kInvalidArgument,
                  "--file '" + argument + "': the container's name is missing after ':'");
    }
  }
  const Result<std::string> text = base::ReadFile(path, model::kMaxPodBytes);
  if (!text) return FailIn("--file", text.error());
  Result<model::PodContainer> pod = model::ReadPodContainer(*text, container);
  if (!pod) return FailIn(path, pod.error());
  return pod;
}

}  // namespace tessera::cli
