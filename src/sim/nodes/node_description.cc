#include "sim/nodes/node_description.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/files.h"
#include "base/plain_text.h"
#include "sim/nodes/card_fields.h"
#include "sim/nodes/presets.h"
#include "sim/nodes/yaml_fields.h"

namespace tessera::sim {
namespace {

constexpr std::size_t kMostFileBytes = 1 << 20;

// The first card of the preset that a card starts from; an A10G without one.
Result<CardSpec> BaseOf(Fields& fields) {
  if (!fields.Has("preset")) return DefaultNode(1).specs[0];
  char name[64] = {};
  fields.Text("preset", name, sizeof name);
  if (!fields.status()) return Fail(fields.status().error());
  const char* text = FindPreset(name);
  std::string legal;
  for (const std::string& known : PresetNames()) legal += (legal.empty() ? "" : ", ") + known;
  if (text == nullptr) {
    fields.Refuse("preset", name, "one of " + legal);
    return Fail(fields.status().error());
  }
  Result<NodeDescription> preset = ParseNode(text);
  if (!preset) return Fail(preset.error());
  return preset->specs[0];
}

// What no two cards of a node may share.
void MakeDistinct(CardSpec* card, std::uint32_t index, const YAML::Node& node) {
  const CardSpec plain = DefaultNode(static_cast<int>(index) + 1).specs[index];
  if (!node["uuid"]) {
    std::memcpy(card->uuid, plain.uuid, sizeof plain.uuid);
    card->uuid[13] = static_cast<std::uint8_t>(card->pci_device_id >>
                                               16);  // cards of different models differ in any node
    card->uuid[12] = static_cast<std::uint8_t>(card->pci_device_id >> 24);
  }
  if (!node["pcie"] || !node["pcie"]["bus"]) card->pci_bus = plain.pci_bus;
  if (!node["serial"] && card->serial[0] != 0)
    std::memcpy(card->serial, plain.serial, sizeof plain.serial);
}

Status ReadCards(const YAML::Node& cards, NodeDescription* description) {
  if (!cards.IsDefined() || !cards.IsSequence() || cards.size() == 0) {
    return Fail(Code::kInvalidArgument, "cards: a list of at least one card is needed");
  }
  description->card_count = 0;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const std::string path = "cards[" + std::to_string(i) + "]";
    if (cards[i].IsNull() || !cards[i].IsMap())
      return Fail(Code::kInvalidArgument, path + " must be a map");
    Fields fields(cards[i], path);
    std::uint32_t count = 1;
    fields.Number("count", 1, kMaxCards, &count);
    if (!fields.status()) return fields.status();
    if (count > 1 && fields.Has("uuid"))
      fields.Refuse("count", std::to_string(count), "1 where uuid is given");
    Result<CardSpec> base = BaseOf(fields);
    if (!fields.status()) return fields.status();
    if (!base) return Fail(base.error());
    for (std::uint32_t j = 0; j < count; ++j) {
      if (description->card_count == kMaxCards) {
        return Fail(Code::kInvalidArgument,
                    "cards: more than " + std::to_string(kMaxCards) + " cards are not legal");
      }
      const std::uint32_t index = description->card_count++;
      CardSpec& card = description->specs[index];
      card = *base;
      MakeDistinct(&card, index, cards[i]);
      if (Status read = ReadCard(cards[i], path, &card); !read) return read;
      if (count > 1 && cards[i]["pcie"] && cards[i]["pcie"]["bus"]) card.pci_bus += j;
    }
  }
  return {};
}

Status CheckDistinct(const NodeDescription& description) {
  for (std::uint32_t i = 0; i < description.card_count; ++i) {
    for (std::uint32_t j = 0; j < i; ++j) {
      const CardSpec &a = description.specs[i], &b = description.specs[j];
      const std::string both = "cards " + std::to_string(j) + " and " + std::to_string(i);
      if (std::memcmp(a.uuid, b.uuid, sizeof a.uuid) == 0) {
        return Fail(Code::kInvalidArgument,
                    both + ": uuid '" + CardUuidText(a) + "' is given twice");
      }
      if (a.pci_domain == b.pci_domain && a.pci_bus == b.pci_bus && a.pci_device == b.pci_device) {
        return Fail(Code::kInvalidArgument,
                    both + ": pcie bus " + std::to_string(a.pci_bus) + " is given twice");
      }
    }
  }
  return {};
}

Status ReadLinks(const YAML::Node& node, NodeDescription* description) {
  Fields fields(node, "links");
  fields.Allow({"all", "per_card"});
  char type[16] = "pcie";
  std::uint32_t per_card = 0;
  fields.Text("all", type, sizeof type);
  fields.Number("per_card", 1, 18, &per_card);
  constexpr const char* kTypes[] = {"none", "pcie", "bridge", "nvlink"};
  std::uint32_t number = 0;
  while (number < std::size(kTypes) && std::strcmp(kTypes[number], type) != 0) ++number;
  if (number == std::size(kTypes)) fields.Refuse("all", type, "none, pcie, bridge or nvlink");
  if (fields.status() && (per_card > 0) != (number == 3)) {
    fields.Refuse("per_card", std::to_string(per_card),
                  "the number of NVLinks of a card, with all: nvlink only");
  }
  if (!fields.status()) return fields.status();
  for (std::uint32_t i = 0; i < description->card_count; ++i) {
    description->specs[i].nvlink_count = per_card;
    for (std::uint32_t j = 0; j < description->card_count; ++j)
      description->specs[i].link_type[j] = i == j ? 0 : number;
  }
  return {};
}

// Without `links`: one PCIe switch per NUMA node.
void DefaultLinks(NodeDescription* description) {
  for (std::uint32_t i = 0; i < description->card_count; ++i) {
    for (std::uint32_t j = 0; j < kMaxCards; ++j) {
      const bool same = description->specs[i].numa_node == description->specs[j].numa_node;
      description->specs[i].link_type[j] = i == j || j >= description->card_count ? 0
                                           : same                                 ? 1
                                                                                  : 2;
    }
  }
}

Status ReadDriver(const YAML::Node& node, NodeDescription* description) {
  Fields fields(node, "driver");
  fields.Allow({"version", "cuda", "memory_limits"});
  std::uint32_t major = description->driver_version_cuda / 1000,
                minor = description->driver_version_cuda % 1000 / 10;
  fields.Text("version", description->driver_version, sizeof description->driver_version);
  ReadPair(fields, "cuda", 99, &major, &minor);
  fields.Flag("memory_limits", &description->memory_limits_supported);
  description->driver_version_cuda = major * 1000 + minor * 10;
  return fields.status();
}

Status ReadCosts(const YAML::Node& node, Costs* costs) {
  Fields fields(node, "costs");
  fields.Allow({"kernel_ns", "launch_queue_depth", "context_slice_ns", "context_switch_ns",
                "event_record_ns", "vmm_create_ns_per_block", "vmm_map_ns_per_block",
                "vmm_access_ns_per_block", "vmm_unmap_ns_per_block", "pageable_permille",
                "host_ns_scale_permille"});
  constexpr std::uint64_t kMinute = 60'000'000'000;
  fields.Number("kernel_ns", 0, kMinute, &costs->kernel_ns);
  fields.Number("launch_queue_depth", 1, 1 << 20, &costs->launch_queue_depth);
  fields.Number("context_slice_ns", 1'000, kMinute, &costs->context_slice_ns);
  fields.Number("context_switch_ns", 0, kMinute, &costs->context_switch_ns);
  fields.Number("event_record_ns", 0, kMinute, &costs->event_record_ns);
  fields.Number("vmm_create_ns_per_block", 0, kMinute, &costs->vmm_create_ns_per_block);
  fields.Number("vmm_map_ns_per_block", 0, kMinute, &costs->vmm_map_ns_per_block);
  fields.Number("vmm_access_ns_per_block", 0, kMinute, &costs->vmm_access_ns_per_block);
  fields.Number("vmm_unmap_ns_per_block", 0, kMinute, &costs->vmm_unmap_ns_per_block);
  fields.Number("pageable_permille", 1, 1'000, &costs->pageable_permille);
  fields.Number("host_ns_scale_permille", 0, 100'000, &costs->host_ns_scale_permille);
  return fields.status();
}

Result<NodeDescription> ReadNode(const YAML::Node& root) {
  NodeDescription description = DefaultNode(1);
  Fields fields(root, "");
  fields.Allow({"driver", "seed", "costs", "cards", "links"});
  fields.Number("seed", 0, ~std::uint64_t{0}, &description.seed);
  if (fields.status() && fields.Has("driver"))
    fields.Take(ReadDriver(fields.Child("driver"), &description));
  if (fields.status() && fields.Has("costs"))
    fields.Take(ReadCosts(fields.Child("costs"), &description.costs));
  if (fields.status() && !fields.Has("cards"))
    fields.Take(Fail(Code::kInvalidArgument, "cards: a list of at least one card is needed"));
  if (fields.status()) fields.Take(ReadCards(fields.Child("cards"), &description));
  if (!fields.status()) return Fail(fields.status().error());
  DefaultLinks(&description);
  if (fields.Has("links")) fields.Take(ReadLinks(fields.Child("links"), &description));
  if (fields.status()) fields.Take(CheckDistinct(description));
  if (!fields.status()) return Fail(fields.status().error());
  return description;
}

}  // namespace

Result<NodeDescription> ParseNode(const std::string& text) {
  if (!base::IsPlainText(text))
    return Fail(Code::kInvalidArgument, "not YAML: holds bytes that are no UTF-8 text");
  try {
    const YAML::Node root = YAML::Load(text);
    Result<NodeDescription> node = ReadNode(root);
    if (node) return node;
    // Keys and values are quoted in the message, and they may span lines.
    Error error = node.error();
    std::replace(error.message.begin(), error.message.end(), '\n', ' ');
    return Fail(error);
  } catch (const YAML::Exception& error) {
    return Fail(Code::kInvalidArgument,
                "line " + std::to_string(error.mark.line + 1) + ": not YAML: " + error.msg);
  }
}

Result<NodeDescription> LoadNode(const std::string& file_or_preset) {
  if (const char* preset = FindPreset(file_or_preset.c_str())) return ParseNode(preset);
  Result<std::string> text = base::ReadFile(file_or_preset, kMostFileBytes);
  if (!text && text.error().code == Code::kNotFound &&
      file_or_preset.find('/') == std::string::npos) {
    std::string legal;
    for (const std::string& name : PresetNames()) legal += (legal.empty() ? "" : ", ") + name;
    return Fail(Code::kNotFound,
                "node '" + file_or_preset + "': no such file, and the presets are " + legal);
  }
  if (!text) return Fail(text.error());
  Result<NodeDescription> description = ParseNode(*text);
  if (!description) return FailIn(file_or_preset, description.error());
  return description;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.emplace_back(preset.name);
  return names;
}

}  // namespace tessera::sim
