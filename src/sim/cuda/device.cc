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
};
constinit Visible visible;

std::string UuidText(const CardSpec& spec) {
  char text[48];
  const std::uint8_t* u = spec.uuid;
  std::snprintf(text, sizeof text,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                u[14], u[15]);
  return text;
}

// Index in `order` of the card that one entry of the list names, -1 if none or more than one.
int Named(const NodeState& node, const int* order, const std::string& entry) {
  const int count = static_cast<int>(node.card_count);
  if (entry.size() >= 4 && strncasecmp(entry.c_str(), "GPU-", 4) == 0) {
    int found = -1;
    for (int i = 0; i < count; ++i)
      if (strncasecmp(UuidText(node.specs[order[i]]).c_str(), entry.c_str(), entry.size()) == 0) {
        if (found >= 0) return -1;
        found = i;
      }
    return found;
  }
  if (entry.empty() || entry.size() > 4 ||
      !std::all_of(entry.begin(), entry.end(), [](unsigned char c) { return std::isdigit(c); }))
    return -1;
  const int index = std::atoi(entry.c_str());
  return index < count ? index : -1;
}

std::string Trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

int ChooseVisible(const NodeState& node, const char* list, const char* order_name,
                  int (&cards)[kMaxCards]) {
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
  int chosen = 0;
  if (!list) {
    for (; chosen < count; ++chosen) cards[chosen] = order[chosen];
    return chosen;
  }
  const std::string text = list;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const int named = Named(node, order, Trimmed(text.substr(at, end - at)));
    if (named < 0) break;
    const int card = order[named];
    if (std::find(cards, cards + chosen, card) != cards + chosen) return 0;
    cards[chosen++] = card;
    at = end + 1;
  }
  return chosen;
}

CUresult InitDevices(NodeState& node) {
  int cards[kMaxCards];
  const int count = ChooseVisible(node, std::getenv("CUDA_VISIBLE_DEVICES"),
                                  std::getenv("CUDA_DEVICE_ORDER"), cards);
  if (count == 0) return CUDA_ERROR_NO_DEVICE;
  for (int i = 0; i < count; ++i)
    visible.devices[i] = {i, cards[i], &node.specs[cards[i]], &node.cards[cards[i]]};
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
