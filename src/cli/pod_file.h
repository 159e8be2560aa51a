// `-f POD.yaml[:CONTAINER]` of `run` and `explain`.
#pragma once

#include <string>

#include "model/pod/pod.h"

namespace tessera::cli {

// Reads the manifest and the container's request. Errors name the file. "-" is no file: stdin
// belongs to the tenant.
Result<model::PodContainer> ReadPodFile(const std::string& argument);

}  // namespace tessera::cli
