// What `run` and `explain` were asked for: options, and a container of a manifest (`-f
// POD.yaml[:CONTAINER]`) below them.
#pragma once

#include <string>
#include <vector>

#include "model/pod/pod.h"
#include "node/request_text.h"

namespace tessera::cli {

// Reads the manifest and the container's request. Errors name the file.
Result<model::PodContainer> ReadPodFile(const std::string& argument);

struct Asked {
  node::NewSlice wanted;
  std::vector<std::string> command;  // the one given, else the container's
};

// `file` empty: the options alone. Otherwise an option that was given stands in place of the
// container's value, its name names the slice, and its command and args are what runs when no
// command was given. Not in a cluster, the image's own command is unknown.
Result<Asked> ReadAsked(const node::RequestText& text, const std::string& file,
                        const std::vector<std::string>& command);

}  // namespace tessera::cli
