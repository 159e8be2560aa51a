// One byte says which file the rest is: a policy, a ledger, a slice.json, or a node's text.
#include <cstdint>
#include <string>

#include "node/cards.h"
#include "node/slice_files.h"
#include "node/slice_record.h"

using namespace tessera::node;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 4) {
    case 0:
      (void)PolicyFromBytes("policy", bytes);
      break;
    case 1: {
      // The fuzzer's short input stands at the start of a file of full length.
      if (bytes.size() > 16384) bytes.resize(16384);
      bytes.resize(sizeof(tessera::contract::LedgerFile));
      (void)LedgerFromBytes("ledger", bytes, {std::uint64_t{1} << 34, std::uint64_t{1} << 34});
      break;
    }
    case 2:
      (void)ParseRecord(bytes);
      break;
    default:
      (void)ParseNode(bytes);
  }
  return 0;
}
