#include "model/wire/pod_devices.h"

#include "model/wire/text.h"

namespace tessera::model::wire {
namespace {

constexpr char kLegalDevice[] = "UUID,type,memory,cores of each device, ended by ':'";

std::string ContainerAt(std::string_view annotation, std::size_t place) {
  return std::string(annotation) + ": container " + std::to_string(place + 1);
}

Result<PromisedDevice> ReadDevice(const std::string& where, std::string_view text) {
  const std::vector<std::string_view> fields = Split(text, ',');
  if (fields.size() < 2 || fields.size() == 3) return NotLegal(where, text, kLegalDevice);
  PromisedDevice device;
  device.id = fields[0];
  device.type = fields[1];
  if (!IsWord(device.id, kMaxIdBytes)) return NotLegal(where + ": UUID", fields[0], kLegalId);
  if (!IsWord(device.type, kMaxTextBytes)) {
    return NotLegal(where + ": type", fields[1], kLegalWord);
  }
  if (fields.size() == 2) return device;
  const auto memory = WholeNumber(fields[2], 0, kMaxCount);
  if (!memory) return NotLegal(where + ": memory", fields[2], kLegalCount);
  const auto cores = WholeNumber(fields[3], 0, kMaxCount);
  if (!cores) return NotLegal(where + ": cores", fields[3], kLegalCount);
  device.memory_mib = static_cast<std::uint32_t>(*memory);
  device.cores = static_cast<std::uint32_t>(*cores);
  return device;
}

Result<std::vector<PromisedDevice>> ReadContainer(const std::string& where, std::string_view text) {
  std::vector<PromisedDevice> devices;
  for (const std::string_view entry : Split(text, ':')) {
    if (entry.empty() || entry == ",,0,0") continue;
    Result<PromisedDevice> device = ReadDevice(where, entry);
    if (!device) return Fail(device.error());
    devices.push_back(std::move(*device));
  }
  return devices;
}

Status CheckCounts(std::string_view annotation, std::size_t containers, std::size_t devices) {
  if (containers > kMaxContainers) {
    return NotLegal(annotation, std::to_string(containers) + " containers",
                    "at most 1024 containers");
  }
  if (devices > kMaxPodDevices) {
    return NotLegal(annotation, std::to_string(devices) + " devices", "at most 4096 devices");
  }
  return {};
}

}  // namespace

Result<PodDevices> ReadPodDevices(std::string_view annotation, std::string_view value) {
  if (Status size = CheckBytes(annotation, value); !size) return Fail(size.error());
  std::vector<std::string_view> containers = Split(value, ';');
  if (containers.back().empty()) containers.pop_back();  // ';' ends, it does not part
  if (Status legal = CheckCounts(annotation, containers.size(), 0); !legal) {
    return Fail(legal.error());
  }
  PodDevices result;
  std::size_t count = 0;
  for (const std::string_view text : containers) {
    Result<std::vector<PromisedDevice>> devices =
        ReadContainer(ContainerAt(annotation, result.size()), text);
    if (!devices) return Fail(devices.error());
    count += devices->size();
    result.push_back(std::move(*devices));
  }
  if (Status legal = CheckCounts(annotation, 0, count); !legal) return Fail(legal.error());
  return result;
}

Result<PodDevices> ForContainers(std::string_view annotation, PodDevices devices, std::size_t init,
                                 std::size_t app) {
  const std::size_t all = init + app;
  const std::size_t written = devices.size();
  while (devices.size() > all && devices.back().empty()) devices.pop_back();
  if (devices.size() == all) return devices;
  if (devices.size() == app) {
    devices.insert(devices.begin(), init, {});
    return devices;
  }
  bool none = true;
  for (const auto& container : devices) none = none && container.empty();
  if (none) return PodDevices(all);
  return NotLegal(annotation, std::to_string(written) + " containers",
                  "an entry for each of " + std::to_string(init) + " init containers and " +
                      std::to_string(app) + " containers");
}

Result<std::string> WritePodDevices(std::string_view annotation, const PodDevices& devices) {
  std::string value;
  std::size_t count = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::string where = ContainerAt(annotation, i);
    for (const PromisedDevice& device : devices[i]) {
      if (!IsWord(device.id, kMaxIdBytes)) return NotLegal(where + ": UUID", device.id, kLegalId);
      if (!IsWord(device.type, kMaxTextBytes)) {
        return NotLegal(where + ": type", device.type, kLegalWord);
      }
      if (!device.memory_mib || !device.cores) {
        return NotLegal(where, device.id, "a device with memory and cores");
      }
      for (const std::uint32_t number : {*device.memory_mib, *device.cores}) {
        if (number > kMaxCount) return NotLegal(where, std::to_string(number), kLegalCount);
      }
      value += device.id + ',' + device.type + ',' + std::to_string(*device.memory_mib) + ',' +
               std::to_string(*device.cores) + ':';
    }
    count += devices[i].size();
    value += ';';
  }
  if (Status legal = CheckCounts(annotation, devices.size(), count); !legal) {
    return Fail(legal.error());
  }
  if (Status size = CheckBytes(annotation, value); !size) return Fail(size.error());
  return value;
}

}  // namespace tessera::model::wire
