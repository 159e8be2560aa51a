// A checked way into a mapped policy.
//
//   PolicyView view; LayoutFault fault = OpenPolicy(mapping, mapped_bytes, &view);
//   view.LimitBytes(card) ...
//
// Thread safety: a view is plain data; words that the agent changes while the slice lives are
// loaded atomically at each call. Invariants: a view never leads outside the mapping; limits above
// what the card has, or above the ledger's largest figure, cannot come out of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/ledger_view.h"

namespace tessera::contract {

class PolicyView {
 public:
  PolicyView() = default;
  PolicyView(const std::byte* base, const PolicyHeader& h)
      : base_(base),
        cards_offset_(h.cards_offset),
        card_stride_(h.card_stride),
        gates_offset_(h.gates_offset),
        gate_stride_(h.gate_stride),
        card_count_(h.card_count) {}

  bool ok() const { return base_ != nullptr; }
  std::uint32_t card_count() const { return card_count_; }
  const PolicyHeader& header() const { return *reinterpret_cast<const PolicyHeader*>(base_); }
  const PolicyCard& Card(std::uint32_t i) const {
    return *reinterpret_cast<const PolicyCard*>(base_ + cards_offset_ +
                                                std::size_t{i} * card_stride_);
  }
  const PolicyGate& Gate(std::uint32_t i) const {
    return *reinterpret_cast<const PolicyGate*>(base_ + gates_offset_ +
                                                std::size_t{i} * gate_stride_);
  }
  std::uint64_t LimitBytes(std::uint32_t i) const {
    const std::uint64_t limit = Load(Card(i).limit_bytes);
    const std::uint64_t ceiling = Load(Card(i).ceiling_bytes);
    const std::uint64_t least = limit < ceiling ? limit : ceiling;
    return least < kMaxBytes ? least : kMaxBytes;
  }

 private:
  const std::byte* base_ = nullptr;
  std::uint32_t cards_offset_ = 0, card_stride_ = 0, gates_offset_ = 0, gate_stride_ = 0;
  std::uint32_t card_count_ = 0;
};

inline bool IsText(const char (&text)[kNameBytes]) {
  for (const char c : text) {
    if (c == '\0') return true;
  }
  return false;
}

inline LayoutFault CheckPolicyHeader(const PolicyHeader& h, std::uint64_t mapped_bytes) {
  if (mapped_bytes < sizeof(PolicyHeader)) return {"size", mapped_bytes, "at least 512 bytes"};
  if (h.magic != kPolicyMagic) return {"magic", h.magic, "TSRPOLY1"};
  if (h.layout != kPolicyLayout) return {"layout", h.layout, "1"};
  if (h.file_bytes > mapped_bytes) return {"file_bytes", h.file_bytes, "no more than the file has"};
  if (h.card_count < 1 || h.card_count > kMaxCards) return {"card_count", h.card_count, "1..16"};
  if (h.card_stride < sizeof(PolicyCard) || h.card_stride % 64 != 0) {
    return {"card_stride", h.card_stride, "at least 256, a multiple of 64"};
  }
  if (h.gate_stride < sizeof(PolicyGate) || h.gate_stride % 64 != 0) {
    return {"gate_stride", h.gate_stride, "at least 64, a multiple of 64"};
  }
  if (h.cards_offset < sizeof(PolicyHeader) || h.cards_offset % 64 != 0 ||
      h.cards_offset + std::uint64_t{h.card_stride} * h.card_count > h.file_bytes) {
    return {"cards_offset", h.cards_offset, "cards inside the file, aligned to 64"};
  }
  if (h.gates_offset < h.cards_offset + std::uint64_t{h.card_stride} * h.card_count ||
      h.gates_offset % 64 != 0 ||
      h.gates_offset + std::uint64_t{h.gate_stride} * h.card_count > h.file_bytes) {
    return {"gates_offset", h.gates_offset,
            "gates behind the cards and inside the file, aligned to 64"};
  }
  if (h.core_policy > static_cast<std::uint32_t>(CorePolicy::kDisable)) {
    return {"core_policy", h.core_policy, "0 default, 1 force, 2 disable"};
  }
  if (h.bypass_action > static_cast<std::uint32_t>(BypassAction::kKill)) {
    return {"bypass_action", h.bypass_action, "0 report, 1 pause, 2 kill"};
  }
  if (!IsText(h.slice_id)) return {"slice_id", 0, "text that ends inside its 64 bytes"};
  if (!IsText(h.slice_name)) return {"slice_name", 0, "text that ends inside its 64 bytes"};
  return {};
}

inline LayoutFault CheckPolicyCard(const PolicyCard& card) {
  const std::uint64_t limit = Load(card.limit_bytes), ceiling = Load(card.ceiling_bytes);
  bool named = false;
  for (const std::uint8_t b : card.uuid) named = named || b != 0;
  if (!named) return {"uuid", 0, "not all zero"};
  if (limit == 0 || limit > ceiling) return {"limit_bytes", limit, "1..ceiling_bytes"};
  if (ceiling > kMaxBytes) return {"ceiling_bytes", ceiling, "up to 256 TiB"};
  if (const std::uint32_t share = Load(card.compute_percent); share < 1 || share > 100) {
    return {"compute_percent", share, "1..100"};
  }
  if (const std::uint32_t priority = Load(card.priority);
      priority > static_cast<std::uint32_t>(Priority::kLow)) {
    return {"priority", priority, "0 high, 1 low"};
  }
  return {};
}

inline LayoutFault OpenPolicy(const void* mapping, std::uint64_t mapped_bytes, PolicyView* view) {
  if (mapping == nullptr || mapped_bytes < sizeof(PolicyHeader)) {
    return {"size", mapped_bytes, "at least 512 bytes"};
  }
  PolicyHeader copy;
  __builtin_memcpy(&copy, mapping, sizeof copy);
  if (const LayoutFault f = CheckPolicyHeader(copy, mapped_bytes); f.field != nullptr) return f;
  const PolicyView opened(static_cast<const std::byte*>(mapping), copy);
  for (std::uint32_t i = 0; i < opened.card_count(); ++i) {
    if (const LayoutFault f = CheckPolicyCard(opened.Card(i)); f.field != nullptr) return f;
    for (std::uint32_t j = 0; j < i; ++j) {
      if (__builtin_memcmp(opened.Card(i).uuid, opened.Card(j).uuid, 16) == 0) {
        return {"uuid", i, "each card once"};
      }
    }
  }
  *view = opened;
  return {};
}

inline bool IsValid(const PolicyFile& file) {
  PolicyView view;
  return OpenPolicy(&file, sizeof file, &view).field == nullptr;
}

}  // namespace tessera::contract
