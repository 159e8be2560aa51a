// Where a slice goes on one machine. Pure: no I/O, no clock, no state.
//
//   Placement placement = Place(node, promises, request);
//   if (placement.chosen.empty()) tell(WhyNot(placement));
//
// Rules (HAMi's, so that the same request means the same on a machine and in a cluster):
//   * N cards are N different physical cards; memory and cores count for each.
//   * memory: absolute, else percent of each card (whole MiB, cut off), else the whole card.
//   * cores 0 promises no share and is refused where all 100 are promised; 100 wants a card without
//   any other slice.
//   * the sum of promises never exceeds the card.
//   * binpack takes the fullest card that fits, spread the emptiest; ties go to the lower index.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/card.h"

namespace tessera::placement {

// The promises of one live slice, as Place needs them.
using Promises = std::vector<model::Slice>;

struct CardVerdict {
  int index = 0;  // of the card
  bool fits = false;
  std::string reason;  // one clause when it does not: "asked 8,000 MiB, free 3,028 of 23,028 MiB"
  std::uint64_t asked_bytes = 0, free_bytes = 0, total_bytes = 0;  // after promises, not after use
  std::uint32_t asked_cores = 0, free_cores = 0;
  std::uint32_t slices = 0;  // live ones on this card
  double fullness = 0;       // 0..2: memory and cores promised with this request on top
};

struct Placement {
  std::vector<CardVerdict> verdicts;     // one for each card of the node, same order
  std::vector<model::SliceCard> chosen;  // empty = refused
  std::string refusal;                   // why when empty: one line with asked, free and where
  bool asked_wrongly = false;  // refused whatever is promised (unknown card, larger than any card)
};

Placement Place(const model::Node& node, const Promises& promises, const model::Request& request);

// Whether `slice` may hold `memory_bytes` on its card `uuid` beside the promises of the others
// (`slice` itself left out by id).
CardVerdict Resize(const model::Node& node, const Promises& promises, const model::Slice& slice,
                   const model::Uuid& uuid, std::uint64_t memory_bytes, std::uint32_t cores);

}  // namespace tessera::placement
