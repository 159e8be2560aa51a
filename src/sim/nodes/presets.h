// The *.yaml files of this folder, built in.
#pragma once

#include <span>

namespace tessera::sim {

struct Preset {
  const char* name;  // the file's, without its ending
  const char* text;
};

std::span<const Preset> Presets();
const char* FindPreset(const char* name);  // nullptr if there is none

}  // namespace tessera::sim
