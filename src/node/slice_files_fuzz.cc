// One byte says which file the rest makes: a policy, a ledger, a slice.json, or a node's text. The
// two binary files start as whole ones and are changed by the input, three bytes a change (offset,
// value), so that what lies behind the header's checks is reached too.
#include <cstdint>
#include <cstring>
#include <string>

#include "node/cards.h"
#include "node/slice_files.h"
#include "node/slice_record.h"

using namespace tessera;
using namespace tessera::node;

namespace {

constexpr std::uint32_t kSlots =
    4;  // enough for two kinds of neighbours, small enough for many runs

std::string WholeLedger() {
  std::string bytes(offsetof(contract::LedgerFile, slots) + kSlots * sizeof(contract::LedgerSlot),
                    '\0');
  auto& ledger = *reinterpret_cast<contract::LedgerFile*>(bytes.data());
  ledger.header.magic = contract::kLedgerMagic;
  ledger.header.layout = contract::kLedgerLayout;
  ledger.header.file_bytes = static_cast<std::uint32_t>(bytes.size());
  ledger.header.cards_offset = offsetof(contract::LedgerFile, cards);
  ledger.header.card_stride = sizeof(contract::LedgerCard);
  ledger.header.card_count = contract::kMaxCards;
  ledger.header.slots_offset = offsetof(contract::LedgerFile, slots);
  ledger.header.slot_stride = sizeof(contract::LedgerSlot);
  ledger.header.slot_count = kSlots;
  ledger.header.kinds = contract::kKinds;
  return bytes;
}

std::string WholePolicy() {
  std::string bytes(sizeof(contract::PolicyFile), '\0');
  auto& policy = *reinterpret_cast<contract::PolicyFile*>(bytes.data());
  policy.header.magic = contract::kPolicyMagic;
  policy.header.layout = contract::kPolicyLayout;
  policy.header.file_bytes = sizeof(contract::PolicyFile);
  policy.header.cards_offset = offsetof(contract::PolicyFile, cards);
  policy.header.card_stride = sizeof(contract::PolicyCard);
  policy.header.card_count = 2;
  policy.header.gates_offset = offsetof(contract::PolicyFile, gates);
  policy.header.gate_stride = sizeof(contract::PolicyGate);
  return bytes;
}

std::string Mutated(std::string bytes, const std::string& changes) {
  for (std::size_t i = 0; i + 2 < changes.size(); i += 3) {
    std::size_t offset =
        static_cast<std::uint8_t>(changes[i]) << 8 | static_cast<std::uint8_t>(changes[i + 1]);
    bytes[offset % bytes.size()] = changes[i + 2];
  }
  // An odd byte at the end cuts the file.
  if (changes.size() % 3 == 1)
    bytes.resize(bytes.size() * static_cast<std::uint8_t>(changes.back()) / 256);
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string ledger = WholeLedger(), policy = WholePolicy();
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 5) {
    case 0:
      (void)PolicyFromBytes("policy", Mutated(policy, bytes));
      break;
    case 1:
      (void)LedgerFromBytes("ledger", Mutated(ledger, bytes),
                            {std::uint64_t{1} << 34, std::uint64_t{1} << 34});
      break;
    case 2:
      (void)PolicyFromBytes("policy", bytes);
      (void)LedgerFromBytes("ledger", bytes, {std::uint64_t{1} << 34});
      break;
    case 3:
      (void)ParseRecord(bytes);
      break;
    default:
      (void)ParseNode(bytes);
  }
  return 0;
}
