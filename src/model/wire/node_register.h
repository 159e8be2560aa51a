// The cards of a node, as the node's agent registers them in an annotation (hami.io/node-nvidia-
// register and its siblings of other vendors).
//
//   Result<std::vector<RegisteredCard>> cards =
//       ReadNodeRegister(contract::kNvidiaAnnotations.node_register, value);
//
// Reads the current form (a JSON list) and the text forms of older versions: cards of 7, 8 (with
// index) or 9 fields (with index and mode), each ended by ':'. Keys of JSON that are not known are
// stepped over. Writes the current form, byte for byte as HAMi does: keys in its order, without
// spaces and without what is 0, false or empty. `annotation` is the name for messages.
//
// Errors: kInvalidArgument. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera::model::wire {

inline constexpr std::size_t kMaxRegisteredCards = 1024;

struct MigPlacement {
  std::uint32_t start = 0, size = 0;  // in memory slices of the card
  friend bool operator==(const MigPlacement&, const MigPlacement&) = default;
};

struct MigProfile {
  std::string name;              // "1g.10gb"
  std::uint32_t memory_mib = 0;  // of one instance
  std::uint32_t cores = 0;       // percent of the card
  std::uint32_t slices = 0;
  std::vector<MigPlacement> placements;  // where an instance may start
  friend bool operator==(const MigProfile&, const MigProfile&) = default;
};

struct RegisteredCard {
  std::string id;  // "GPU-..."; never empty, no two of a node alike
  std::uint32_t index = 0;
  std::uint32_t count = 0;       // how many containers may share it
  std::uint32_t memory_mib = 0;  // after scaling, where a node promises more than there is
  std::uint32_t cores = 0;       // percent; 100 without scaling
  std::string type;              // "NVIDIA-Tesla V100-PCIE-32GB"
  std::int32_t numa = 0;         // -1 = not known
  std::string mode;              // "hami-core", "mig", "mps"; empty = not said
  std::vector<MigProfile> mig_profiles;
  bool healthy = false;
  friend bool operator==(const RegisteredCard&, const RegisteredCard&) = default;
};

// Empty only for "[]", a node that registered no card.
Result<std::vector<RegisteredCard>> ReadNodeRegister(std::string_view annotation,
                                                     std::string_view value);

Result<std::string> WriteNodeRegister(std::string_view annotation,
                                      const std::vector<RegisteredCard>& cards);

}  // namespace tessera::model::wire
