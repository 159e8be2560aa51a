// Any bytes as a policy: opening it and reading its limits stays inside the mapping.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "contract/policy_view.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace c = tessera::contract;
  if (size < 1) return 0;
  const bool repaired = data[0] & 1;
  std::size_t bytes = size - 1;
  if (repaired && bytes < sizeof(c::PolicyHeader)) bytes = sizeof(c::PolicyHeader);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
  std::memset(memory, 0, bytes);
  std::memcpy(memory, data + 1, size - 1);
  if (repaired) {
    auto& h = *reinterpret_cast<c::PolicyHeader*>(memory);
    h.magic = c::kPolicyMagic;
    h.layout = c::kPolicyLayout;
    h.file_bytes = static_cast<std::uint32_t>(bytes);
    h.slice_id[63] = h.slice_name[63] = 0;
  }
  c::PolicyView view;
  if (c::OpenPolicy(memory, bytes, &view).field == nullptr) {
    for (std::uint32_t i = 0; i < view.card_count(); ++i) {
      if (view.LimitBytes(i) > c::kMaxBytes) std::abort();
      c::Load(view.Gate(i).word);
    }
  }
  std::free(memory);
  return 0;
}
