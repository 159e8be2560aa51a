// Plain values of one machine: its cards and what was promised on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/quantity.h"
#include "model/uuid.h"

namespace tessera::model {

struct Card {
  int index = 0;  // as NVML counts (PCI order)
  Uuid uuid;
  std::string name;                 // "NVIDIA A10G"
  std::uint64_t memory_bytes = 0;   // as cuDeviceTotalMem and NVML total (v1)
  std::uint64_t context_bytes = 0;  // what one CUDA context takes, 0 = not measured
  std::uint32_t pci_domain = 0, pci_bus = 0, pci_device = 0;
  std::uint32_t cc_major = 0, cc_minor = 0;
  bool mig_enabled = false;  // the card itself cannot be used, only its instances
  bool healthy = true;
  std::string unhealthy_reason;  // one line when not healthy
};

struct Node {
  std::vector<Card> cards;     // in order of index
  std::string driver_version;  // "580.95.05"; empty when there is no driver
};

// What one container was promised on one card.
struct SliceCard {
  Uuid uuid;
  std::uint64_t memory_bytes = 0;
  std::uint32_t cores = 0;  // percent of the card; 0 = none promised, runs when others do not
};

struct Slice {
  std::string id;    // unique for ever; the directory's name
  std::string name;  // unique among live slices
  std::vector<SliceCard> cards;
  Priority priority = Priority::kLow;
};

// What somebody asks for. Memory and cores are for each card.
struct Request {
  std::string name;              // empty: made from the command
  std::uint32_t card_count = 1;  // different physical cards
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint32_t> memory_percent;  // of each card; used when memory_bytes is not given
  std::uint32_t cores = 0;                      // 100 = nobody else on the card
  Priority priority = Priority::kLow;
  std::vector<std::string> only_cards;  // index or UUID; empty = any
  Policy policy = Policy::kBinpack;
};

}  // namespace tessera::model
