#include "sim/nodes/node_description.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/files.h"
#include "base/plain_text.h"
#include "sim/nodes/presets.h"
#include "sim/nodes/yaml_fields.h"

namespace tessera::sim {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kMostFileBytes = 1 << 20;

// "8.6": two numbers. YAML's 8.0 arrives as it was written.
void ReadPair(Fields& fields, const char* field, std::uint32_t most, std::uint32_t* first,
              std::uint32_t* second) {
  if (!fields.Has(field)) return;
  const YAML::Node node = fields.Child(field);
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  unsigned int major = 0, minor = 0;
  char rest = 0;
  if (text.size() > 8 || std::sscanf(text.c_str(), "%u.%u%c", &major, &minor, &rest) != 2 ||
      major > most || minor > 9) {
    fields.Refuse(field, text, "two numbers with a point between, as 8.6");
    return;
  }
  *first = major;
  *second = minor;
}

void ReadUuid(Fields& fields, const char* prefix, std::uint8_t uuid[16]) {
  if (!fields.Has("uuid")) return;
  char text[64] = {};
  fields.Text("uuid", text, sizeof text);
  const std::string_view legal = "8-4-4-4-12 hexadecimal digits behind ";
  std::string digits;
  std::string_view rest = text;
  bool good = rest.starts_with(prefix);
  if (good) rest.remove_prefix(std::strlen(prefix));
  good = good && rest.size() == 36;
  for (std::size_t i = 0; good && i < rest.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    good = dash ? rest[i] == '-' : std::isxdigit(static_cast<unsigned char>(rest[i])) != 0;
    if (!dash) digits += rest[i];
  }
  if (!good) {
    fields.Refuse("uuid", text, std::string(legal) + prefix);
    return;
  }
  for (int i = 0; i < 16; ++i) {
    uuid[i] = static_cast<std::uint8_t>(
        std::stoul(digits.substr(static_cast<std::size_t>(i) * 2, 2), nullptr, 16));
  }
}

Status ReadPcie(const YAML::Node& node, const std::string& path, CardSpec* card) {
  Fields fields(node, path);
  fields.Allow({"generation", "width", "domain", "bus", "device", "device_id", "subsystem_id"});
  fields.Number("generation", 1, 6, &card->pcie_generation);
  fields.Number("width", 1, 16, &card->pcie_width);
  fields.Number("domain", 0, 0xffffffff, &card->pci_domain);
  fields.Number("bus", 0, 0xff, &card->pci_bus);
  fields.Number("device", 0, 0x1f, &card->pci_device);
  fields.Number("device_id", 0, 0xffffffff, &card->pci_device_id);
  fields.Number("subsystem_id", 0, 0xffffffff, &card->pci_subsystem_id);
  return fields.status();
}

Status ReadMigDevice(const YAML::Node& node, const std::string& path, std::uint32_t index,
                     CardSpec* card) {
  MigSpec& mig = card->mig[index];
  mig = {};
  Fields fields(node, path);
  fields.Allow({"profile", "uuid", "memory_mib", "sms", "gpu_instance", "compute_instance"});
  for (const char* field : {"profile", "memory_mib", "sms"}) {
    if (!fields.Has(field))
      fields.Refuse(field, "", "every MIG device needs profile, memory_mib and sms");
  }
  std::uint64_t mib = 0;
  fields.Text("profile", mig.profile, sizeof mig.profile);
  fields.Number("memory_mib", 1, card->memory_bytes / kMiB, &mib);
  fields.Number("sms", 1, card->sm_count, &mig.sm_count);
  unsigned int compute = 0, memory = 0;
  if (fields.status() && (std::sscanf(mig.profile, "%ug.%ugb", &compute, &memory) != 2 ||
                          compute == 0 || compute > 7)) {
    fields.Refuse("profile", mig.profile, "slices and memory, as 1g.10gb");
  }
  mig.memory_bytes = mib * kMiB;
  mig.gpu_slices = mig.compute_slices = compute;
  mig.gpu_instance = 1 + index;
  fields.Number("gpu_instance", 0, 14, &mig.gpu_instance);
  fields.Number("compute_instance", 0, 7, &mig.compute_instance);
  std::memcpy(mig.uuid, card->uuid, sizeof mig.uuid);
  mig.uuid[0] ^= 0x4d;  // "M": no card has it
  mig.uuid[14] = static_cast<std::uint8_t>(index + 1);
  ReadUuid(fields, "MIG-", mig.uuid);
  return fields.status();
}

Status ReadMig(const YAML::Node& node, const std::string& path, CardSpec* card) {
  Fields fields(node, path);
  fields.Allow({"capable", "devices"});
  fields.Flag("capable", &card->mig_capable);
  if (!fields.Has("devices")) return fields.status();
  const YAML::Node devices = fields.Child("devices");
  if (card->mig_capable == 0)
    fields.Refuse("devices", "…", "only a card with capable: true has MIG devices");
  if (!devices.IsSequence() || devices.size() > kMaxMigDevices) {
    fields.Refuse("devices", "…",
                  "a list of at most " + std::to_string(kMaxMigDevices) + " devices");
    return fields.status();
  }
  card->mig_enabled = 1;
  card->mig_count = static_cast<std::uint32_t>(devices.size());
  std::uint32_t slices = 0;
  for (std::uint32_t i = 0; i < card->mig_count; ++i) {
    fields.Take(ReadMigDevice(devices[i], path + ".devices[" + std::to_string(i) + "]", i, card));
    slices += card->mig[i].compute_slices;
  }
  if (fields.status() && slices > 7) {
    fields.Refuse("devices", std::to_string(slices) + " slices", "at most 7 slices on a card");
  }
  return fields.status();
}

Status ReadCard(const YAML::Node& node, const std::string& path, CardSpec* card) {
  Fields fields(node, path);
  fields.Allow({"preset",
                "count",
                "name",
                "brand",
                "serial",
                "uuid",
                "memory_mib",
                "reserved_mib",
                "context_mib",
                "bar1_mib",
                "sms",
                "cores_per_sm",
                "compute_capability",
                "sm_clock_mhz",
                "memory_clock_mhz",
                "power_limit_w",
                "idle_power_w",
                "memory_bus_bits",
                "l2_kib",
                "fans",
                "ecc",
                "link_mb_per_s",
                "pcie",
                "numa",
                "mig"});
  std::uint64_t memory = card->memory_bytes / kMiB, reserved = card->reserved_bytes / kMiB;
  std::uint64_t context = card->context_bytes / kMiB, bar1 = card->bar1_bytes / kMiB;
  std::uint32_t limit = card->power_limit_mw / 1000, idle = card->idle_power_mw / 1000,
                l2 = card->l2_bytes / 1024;
  std::uint64_t link = card->link_bytes_per_s / 1'000'000;
  fields.Text("name", card->name, sizeof card->name);
  fields.Text("brand", card->brand, sizeof card->brand);
  fields.Text("serial", card->serial, sizeof card->serial);
  fields.Number("memory_mib", 64, 4 << 20, &memory);
  if (fields.Has("memory_mib") && !fields.Has("reserved_mib"))
    reserved = std::min(reserved, memory / 4);
  fields.Number("reserved_mib", 0, memory, &reserved);
  fields.Number("context_mib", 0, memory, &context);
  fields.Number("bar1_mib", 1, 4 << 20, &bar1);
  fields.Number("sms", 1, 1024, &card->sm_count);
  fields.Number("cores_per_sm", 1, 1024, &card->cores_per_sm);
  ReadPair(fields, "compute_capability", 99, &card->cc_major, &card->cc_minor);
  fields.Number("sm_clock_mhz", 300, 10'000, &card->sm_clock_mhz);
  fields.Number("memory_clock_mhz", 300, 50'000, &card->memory_clock_mhz);
  fields.Number("power_limit_w", 1, 5'000, &limit);
  fields.Number("idle_power_w", 0, limit, &idle);
  fields.Number("memory_bus_bits", 32, 65'536, &card->memory_bus_bits);
  fields.Number("l2_kib", 1, 4 << 20, &l2);
  fields.Number("fans", 0, 8, &card->fan_count);
  fields.Flag("ecc", &card->ecc_supported);
  fields.Number("link_mb_per_s", 1, 10'000'000, &link);
  fields.Number("numa", 0, 63, &card->numa_node);
  card->memory_bytes = memory * kMiB;
  card->reserved_bytes = reserved * kMiB;
  card->context_bytes = context * kMiB;
  card->bar1_bytes = bar1 * kMiB;
  card->power_limit_mw = limit * 1000;
  card->idle_power_mw = idle * 1000;
  card->l2_bytes = l2 * 1024;
  card->link_bytes_per_s = link * 1'000'000;
  ReadUuid(fields, "GPU-", card->uuid);
  if (fields.Has("pcie")) fields.Take(ReadPcie(fields.Child("pcie"), fields.PathOf("pcie"), card));
  if (fields.status() && fields.Has("mig"))
    fields.Take(ReadMig(fields.Child("mig"), fields.PathOf("mig"), card));
  return fields.status();
}

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

std::string CardUuidText(const CardSpec& card) {
  char text[48];
  const std::uint8_t* u = card.uuid;
  std::snprintf(text, sizeof text,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                u[14], u[15]);
  return text;
}

}  // namespace tessera::sim
