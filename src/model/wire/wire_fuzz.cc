// What stands in an annotation is taken apart without a crash, by the reader that the first byte
// names; what was read and written again is read as the same value.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "model/wire/gpu_share.h"
#include "model/wire/handshake.h"
#include "model/wire/node_register.h"
#include "model/wire/pod_devices.h"
#include "model/wire/pod_state.h"

using namespace tessera;
using namespace tessera::model::wire;

namespace {

void Check(bool good) {
  if (!good) std::abort();
}

void CheckError(const Error& error) {
  Check(error.code == Code::kInvalidArgument);
  Check(error.message.size() < 1000 && error.message.find('\n') == std::string::npos);
  Check(error.message.find("is not legal: ") != std::string::npos);
}

template <typename T, typename Read, typename Write>
void CheckBothWays(const Result<T>& value, Read read, Write write) {
  if (!value) return CheckError(value.error());
  const Result<std::string> written = write(*value);
  if (!written) return CheckError(written.error());
  const Result<T> again = read(*written);
  Check(again && *again == *value);
}

void FuzzGpuShare(std::string_view text) {
  constexpr const char* kNames[] = {"ASSIGNED", "ASSUME_TIME", "DEV", "IDX", "POD"};
  std::pair<std::string, std::string> annotations[5];
  for (std::size_t i = 0; i < 5; ++i) {
    const std::size_t end = text.find('\n');
    annotations[i] = {std::string("ALIYUN_COM_GPU_MEM_") + kNames[i],
                      std::string(text.substr(0, end))};
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  const auto share = ReadGpuShare(annotations);
  if (!share) return CheckError(share.error());
  Check(share->has_value() && (*share)->pod_units <= (*share)->card_units);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto pod = [](std::string_view value) { return ReadPodDevices("a", value); };
  switch (data[0]) {
    case 'n':
      CheckBothWays(
          ReadNodeRegister("a", text),
          [](std::string_view value) { return ReadNodeRegister("a", value); },
          [](const auto& cards) { return WriteNodeRegister("a", cards); });
      break;
    case 'p':
      CheckBothWays(pod(text), pod, [](const auto& pods) { return WritePodDevices("a", pods); });
      if (const auto devices = pod(text)) {
        const auto fitted = ForContainers("a", *devices, 1, 2);
        if (!fitted) CheckError(fitted.error());
        if (fitted) Check(fitted->size() == 3);
      }
      break;
    case 'h': {
      auto handshake = ReadHandshake("a", text);
      if (handshake) handshake->utc_offset_seconds.reset();  // is read and not written
      CheckBothWays(
          handshake, [](std::string_view value) { return ReadHandshake("a", value); },
          [](const Handshake& value) { return WriteHandshake("a", value); });
      break;
    }
    case 'g':
      FuzzGpuShare(text);
      break;
    default:
      if (const auto phase = ReadBindPhase(text)) {
        Check(text == ToString(*phase));
      } else {
        CheckError(phase.error());
      }
      CheckBothWays(
          ReadUnixSeconds("a", text),
          [](std::string_view value) { return ReadUnixSeconds("a", value); },
          [](std::int64_t seconds) { return WriteUnixSeconds("a", seconds); });
      if (const auto node = ReadNodeName(text)) {
        Check(*node == text);
      } else {
        CheckError(node.error());
      }
  }
  return 0;
}
