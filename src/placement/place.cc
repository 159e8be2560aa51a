#include "placement/place.h"

#include <algorithm>
#include <charconv>

#include "base/plain_text.h"

namespace tessera::placement {
namespace {

using model::Card;
using model::MibText;
using model::Request;

constexpr std::uint32_t kAllCores = 100;

struct Promised {
  std::uint64_t bytes = 0;
  std::uint32_t cores = 0;
  std::uint32_t slices = 0;
  bool exclusive = false;
};

Promised PromisedOn(const Promises& promises, const model::Uuid& uuid,
                    const std::string& leave_out) {
  Promised sum;
  for (const model::Slice& slice : promises) {
    if (slice.id == leave_out) continue;
    for (const model::SliceCard& card : slice.cards) {
      if (card.uuid != uuid) continue;
      sum.bytes += card.memory_bytes;
      sum.cores += card.cores;
      sum.slices += 1;
      sum.exclusive = sum.exclusive || card.cores == kAllCores;
    }
  }
  return sum;
}

// The card that `text` names, or nullptr.
const Card* CardNamed(const model::Node& node, const std::string& text) {
  int index = -1;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  bool is_index = error == std::errc() && end == text.data() + text.size();
  std::optional<model::Uuid> uuid = model::ParseUuid(text);
  for (const Card& card : node.cards) {
    if ((is_index && card.index == index) || (uuid && card.uuid == *uuid)) return &card;
  }
  return nullptr;
}

std::string CardList(const model::Node& node) {
  std::string text;
  for (const Card& card : node.cards) {
    if (!text.empty()) text += ", ";
    text += std::to_string(card.index) + " (" + ToString(card.uuid) + ")";
  }
  return text;
}

std::uint64_t AskedBytes(const Request& request, const Card& card) {
  if (request.memory_bytes) return *request.memory_bytes;
  if (!request.memory_percent) return card.memory_bytes;
  std::uint64_t mib = card.memory_bytes / model::kMib * *request.memory_percent / 100;
  return mib * model::kMib;
}

CardVerdict Judge(const Card& card, const Promised& promised, std::uint64_t asked_bytes,
                  std::uint32_t asked_cores) {
  CardVerdict verdict;
  verdict.index = card.index;
  verdict.asked_bytes = asked_bytes;
  verdict.total_bytes = card.memory_bytes;
  verdict.free_bytes = card.memory_bytes - std::min(card.memory_bytes, promised.bytes);
  verdict.asked_cores = asked_cores;
  verdict.free_cores = kAllCores - std::min(kAllCores, promised.cores);
  verdict.slices = promised.slices;
  double total = card.memory_bytes > 0 ? static_cast<double>(card.memory_bytes) : 1.0;
  verdict.fullness = static_cast<double>(promised.bytes + asked_bytes) / total +
                     static_cast<double>(promised.cores + asked_cores) / kAllCores;

  if (!card.healthy) {
    verdict.reason = "not healthy: " + card.unhealthy_reason;
  } else if (card.mig_enabled) {
    verdict.reason = "MIG is enabled: the card itself cannot be used";
  } else if (asked_bytes == 0) {
    verdict.reason = "the percentage asked is less than 1 MiB";
  } else if (asked_bytes > card.memory_bytes) {
    verdict.reason =
        "asked " + MibText(asked_bytes) + ", the whole card has " + MibText(card.memory_bytes);
  } else if (promised.exclusive) {
    verdict.reason = "promised whole (cores 100) to another slice";
  } else if (asked_bytes > verdict.free_bytes) {
    verdict.reason = "asked " + MibText(asked_bytes) + ", free " + MibText(verdict.free_bytes) +
                     " of " + MibText(card.memory_bytes) + " (" + std::to_string(promised.slices) +
                     (promised.slices == 1 ? " slice)" : " slices)");
  } else if (asked_cores == kAllCores && promised.slices > 0) {
    verdict.reason = "asked the card for itself (cores 100), " + std::to_string(promised.slices) +
                     (promised.slices == 1 ? " slice is on it" : " slices are on it");
  } else if (asked_cores > verdict.free_cores) {
    verdict.reason = "asked " + std::to_string(asked_cores) + " % of cores, free " +
                     std::to_string(verdict.free_cores) + " %";
  } else if (asked_cores == 0 && verdict.free_cores == 0) {
    verdict.reason = "all 100 % of cores are promised, none is left for a slice without a share";
  } else {
    verdict.fits = true;
  }
  return verdict;
}

Placement Wrong(Placement placement, std::string refusal) {
  placement.refusal = std::move(refusal);
  placement.asked_wrongly = true;
  return placement;
}

// "card 0: asked ..., card 1: ..." for the cards that were considered.
std::string Reasons(const std::vector<CardVerdict>& verdicts) {
  std::string text;
  for (const CardVerdict& verdict : verdicts) {
    if (verdict.fits) continue;
    if (!text.empty()) text += "; ";
    text += "card " + std::to_string(verdict.index) + ": " + verdict.reason;
  }
  return text;
}

}  // namespace

Placement Place(const model::Node& node, const Promises& promises, const Request& request) {
  Placement placement;
  if (node.cards.empty()) return Wrong(placement, "no card on this machine");
  std::vector<bool> wanted(node.cards.size(), request.only_cards.empty());
  for (const std::string& text : request.only_cards) {
    const Card* card = CardNamed(node, text);
    if (card == nullptr) {
      return Wrong(placement, "--card: '" + base::Shown(text) +
                                  "' is not a card of this machine: " + CardList(node));
    }
    wanted[static_cast<std::size_t>(card - node.cards.data())] = true;
  }
  std::uint64_t largest = 0;
  std::uint32_t considered = 0;
  for (std::size_t i = 0; i < node.cards.size(); ++i) {
    const Card& card = node.cards[i];
    placement.verdicts.push_back(
        Judge(card, PromisedOn(promises, card.uuid, ""), AskedBytes(request, card), request.cores));
    if (!wanted[i]) {
      placement.verdicts.back().fits = false;
      placement.verdicts.back().reason = "not asked for";
      continue;
    }
    ++considered;
    if (card.healthy && !card.mig_enabled) largest = std::max(largest, card.memory_bytes);
  }
  std::vector<CardVerdict> asked;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) asked.push_back(placement.verdicts[i]);
  }
  if (request.card_count > considered) {
    return Wrong(placement, "--cards: '" + std::to_string(request.card_count) +
                                "' is more than the " + std::to_string(considered) +
                                (considered == 1 ? " card" : " cards") + " that may be used here");
  }
  if (request.memory_bytes && largest > 0 && *request.memory_bytes > largest) {
    return Wrong(placement, "--mem: '" + MibText(*request.memory_bytes) +
                                "' is more than a card has: " + Reasons(asked));
  }

  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < placement.verdicts.size(); ++i) {
    if (placement.verdicts[i].fits) order.push_back(i);
  }
  if (order.size() < request.card_count) {
    placement.refusal = "no room for " + std::to_string(request.card_count) +
                        (request.card_count == 1 ? " card: " : " cards: ") + Reasons(asked);
    return placement;
  }
  bool binpack = request.policy == model::Policy::kBinpack;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    double fullness_a = placement.verdicts[a].fullness, fullness_b = placement.verdicts[b].fullness;
    return binpack ? fullness_a > fullness_b : fullness_a < fullness_b;
  });
  order.resize(request.card_count);
  std::sort(order.begin(), order.end());  // the program sees its cards in the order of the machine
  for (std::size_t i : order) {
    placement.chosen.push_back(
        {node.cards[i].uuid, placement.verdicts[i].asked_bytes, request.cores});
  }
  return placement;
}

CardVerdict Resize(const model::Node& node, const Promises& promises, const model::Slice& slice,
                   const model::Uuid& uuid, std::uint64_t memory_bytes, std::uint32_t cores) {
  for (const Card& card : node.cards) {
    if (card.uuid == uuid)
      return Judge(card, PromisedOn(promises, uuid, slice.id), memory_bytes, cores);
  }
  CardVerdict verdict;
  verdict.index = -1;
  verdict.asked_bytes = memory_bytes;
  verdict.reason = ToString(uuid) + " is not on this machine any more";
  return verdict;
}

}  // namespace tessera::placement
