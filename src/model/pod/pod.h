// Reads what a container of a pod manifest asks of the GPU (HAMi's resource names,
// contract/resources.h).
//
//   Result<PodContainer> chat = ReadPodContainer(text, "chat");
//
// Takes Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, Job and CronJob; in a file of several
// documents exactly one of these. Rules (HAMi's, so that a manifest means the same here as in a
// cluster):
//   * limits count, requests where a limit is missing; both and different is an error, as for the
//   API server.
//   * gpu N = N different cards, memory and cores on each; missing beside another = 1.
//   * gpumem (MiB) wins over gpumem-percentage; neither = the whole card, and then no gpucores =
//   100, an exclusive card.
//   * priority (0 high, 1 low) may stand as limit or as annotation of the pod.
// Stricter than HAMi, where that silently drops limits: a quantity is a whole number, or one with k
// (what the API server makes of thousands); anything else, a misspelt name, a limit written as
// annotation, a constraint that a single machine cannot keep and a key that stands twice are errors
// naming field, value and what is legal. Units: MiB become bytes. Thread safety: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/card.h"

namespace tessera::model {

inline constexpr std::size_t kMaxPodBytes = std::size_t{1} << 20;

struct PodContainer {
  std::string pod;  // metadata.name; may be empty (generateName)
  std::string container;
  Request request;
  std::vector<std::string> command;  // command and args as they stand; empty = the image's own
};

// `container` empty: the only one that asks for a GPU. kInvalidArgument for everything wrong with
// the text.
Result<PodContainer> ReadPodContainer(std::string_view text, std::string_view container);

}  // namespace tessera::model
