#include "sim/nodes/card_fields.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace tessera::sim {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

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

}  // namespace

// YAML's 8.0 arrives as it was written.
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

}  // namespace tessera::sim
