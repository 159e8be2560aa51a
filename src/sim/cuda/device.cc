#include "sim/cuda/device.h"

#include <strings.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace tessera::sim {
namespace {

struct Visible {
  NodeState* node = nullptr;
  int count = 0;
  Device devices[kMaxCards] = {};
  CardSpec mig_spec = {};
};
constinit Visible visible;

std::string UuidText(const char* prefix, const std::uint8_t (&u)[16]) {
  char text[48];
  std::snprintf(text, sizeof text,
                "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix,
                u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
                u[13], u[14], u[15]);
  return text;
}

bool StartsWith(const std::string& text, const std::string& start) {
  return strncasecmp(text.c_str(), start.c_str(), start.size()) == 0;
}

constexpr Choice kNothing{-1, -1};

// The card as a program sees it that names the card: in MIG mode its first MIG device.
Choice Whole(const NodeState& node, int card) {
  const CardSpec& spec = node.specs[card];
  if (spec.mig_enabled == 0) return {card, -1};
  return spec.mig_count != 0 ? Choice{card, 0} : kNothing;
}

// The one thing that `names` (a function of card and MIG device, -1 for the card itself) is true
// for.
template <typename Names>
Choice Only(const NodeState& node, Names names) {
  Choice found = kNothing;
  for (int card = 0; card < static_cast<int>(node.card_count); ++card) {
    const CardSpec& spec = node.specs[card];
    const int devices = spec.mig_enabled != 0 ? static_cast<int>(spec.mig_count) : 0;
    for (int mig = -1; mig < devices; ++mig) {
      if (!names(spec, mig)) continue;
      if (found.card >= 0) return kNothing;
      found = mig < 0 ? Whole(node, card) : Choice{card, mig};
    }
  }
  return found;
}

// What one entry of the list names.
Choice Named(const NodeState& node, const int* order, const std::string& entry) {
  if (StartsWith(entry, "GPU-")) {
    return Only(node, [&](const CardSpec& spec, int mig) {
      return mig < 0 && StartsWith(UuidText("GPU-", spec.uuid), entry);
    });
  }
  if (StartsWith(entry, "MIG-GPU-")) {
    return Only(node, [&](const CardSpec& spec, int mig) {
      if (mig < 0) return false;
      const std::string name = UuidText("MIG-GPU-", spec.uuid) + "/" +
                               std::to_string(spec.mig[mig].gpu_instance) + "/" +
                               std::to_string(spec.mig[mig].compute_instance);
      return name.size() == entry.size() && StartsWith(name, entry);
    });
  }
  if (StartsWith(entry, "MIG-")) {
    return Only(node, [&](const CardSpec& spec, int mig) {
      return mig >= 0 && StartsWith(UuidText("MIG-", spec.mig[mig].uuid), entry);
    });
  }
  if (entry.empty() || entry.size() > 4 ||
      !std::all_of(entry.begin(), entry.end(), [](unsigned char c) { return std::isdigit(c); }))
    return kNothing;
  const int index = std::atoi(entry.c_str());
  return index < static_cast<int>(node.card_count) ? Whole(node, order[index]) : kNothing;
}

// A program sees one MIG device or whole cards.
int KeepOneKind(const Choice* chosen, int count) {
  if (count == 0 || chosen[0].mig >= 0) return std::min(count, 1);
  return static_cast<int>(
      std::find_if(chosen, chosen + count, [](const Choice& c) { return c.mig >= 0; }) - chosen);
}

std::string Trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

int ChooseVisible(const NodeState& node, const char* list, const char* order_name,
                  Choice (&chosen)[kMaxCards]) {
  const int count = static_cast<int>(node.card_count);
  int order[kMaxCards];
  for (int i = 0; i < count; ++i) order[i] = i;
  auto pci = [&](int card) {
    const CardSpec& s = node.specs[card];
    return std::uint64_t{s.pci_domain} << 32 | s.pci_bus << 16 | s.pci_device;
  };
  auto speed = [&](int card) {
    return std::uint64_t{node.specs[card].sm_count} * node.specs[card].sm_clock_mhz;
  };
  const bool by_bus = order_name && std::strcmp(order_name, "PCI_BUS_ID") == 0;
  std::stable_sort(order, order + count, [&](int a, int b) {
    if (!by_bus && speed(a) != speed(b)) return speed(a) > speed(b);
    return pci(a) < pci(b);
  });
  int found = 0;
  if (!list) {
    for (int i = 0; i < count; ++i)
      if (const Choice whole = Whole(node, order[i]); whole.card >= 0) chosen[found++] = whole;
    return KeepOneKind(chosen, found);
  }
  const std::string text = list;
  for (std::size_t at = 0; at <= text.size() && found < kMaxCards;) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const Choice named = Named(node, order, Trimmed(text.substr(at, end - at)));
    if (named.card < 0) break;
    if (std::any_of(chosen, chosen + found, [&](const Choice& have) {
          return have.card == named.card && have.mig == named.mig;
        }))
      return 0;
    chosen[found++] = named;
    at = end + 1;
  }
  return KeepOneKind(chosen, found);
}

namespace {

// What a program sees of a card through a MIG device.
void ReadMigSpec(const CardSpec& card, const MigSpec& mig, CardSpec* spec) {
  *spec = card;
  const std::string name = std::string(card.name) + " MIG " + mig.profile;
  std::snprintf(spec->name, sizeof spec->name, "%s", name.c_str());
  spec->memory_bytes = mig.memory_bytes;
  spec->reserved_bytes = 0;
  spec->sm_count = mig.sm_count;
  for (std::uint32_t& link : spec->link_type) link = 0;
}

}  // namespace

CUresult InitDevices(NodeState& node) {
  Choice chosen[kMaxCards];
  const int count = ChooseVisible(node, std::getenv("CUDA_VISIBLE_DEVICES"),
                                  std::getenv("CUDA_DEVICE_ORDER"), chosen);
  if (count == 0) return CUDA_ERROR_NO_DEVICE;
  for (int i = 0; i < count; ++i) {
    const auto [card, mig] = chosen[i];
    const CardSpec* spec = &node.specs[card];
    if (mig >= 0) {
      ReadMigSpec(*spec, spec->mig[mig], &visible.mig_spec);
      spec = &visible.mig_spec;
      UseMigDevice(card, mig);
    }
    visible.devices[i] = {i, card, spec, &node.cards[card], mig < 0 ? nullptr : &spec->mig[mig]};
  }
  visible.node = &node;
  visible.count = count;
  return CUDA_SUCCESS;
}

int DeviceCount() { return visible.count; }
NodeState* Node() { return visible.node; }

const Device* FindDevice(CUdevice ordinal) {
  return ordinal >= 0 && ordinal < visible.count ? &visible.devices[ordinal] : nullptr;
}

const Device* DeviceOfCard(int card) {
  for (int i = 0; i < visible.count; ++i)
    if (visible.devices[i].card == card) return &visible.devices[i];
  return nullptr;
}

}  // namespace tessera::sim
