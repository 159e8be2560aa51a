// The slice that the fake driver's cards belong to.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "memory/testing/fake_state.h"
#include "slice/slice.h"

namespace tessera::fence::testing {
namespace {

contract::PolicyFile* g_policy = nullptr;
contract::LedgerView g_ledger;
std::string g_directory;

void* MakeFile(const std::string& path, std::size_t bytes) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map == MAP_FAILED) std::abort();
  return map;
}

}  // namespace

void Install() {
  if (g_policy != nullptr) return;
  fake::PlaceContexts();
  fake::PlaceLinear();
  fake::PlacePools();
  fake::PlacePhysical();
  fake::PlaceArrays();
  fake::PlaceCode();
  fake::PlaceGraphs();
  fake::PlaceFigures();
  char name[] = "/tmp/tessera-fence-test-XXXXXX";
  if (mkdtemp(name) == nullptr) std::abort();
  g_directory = name;
  g_policy =
      static_cast<contract::PolicyFile*>(MakeFile(g_directory + "/policy", sizeof *g_policy));
  contract::PolicyHeader& h = g_policy->header;
  h.magic = contract::kPolicyMagic;
  h.layout = contract::kPolicyLayout;
  h.file_bytes = sizeof *g_policy;
  h.cards_offset = offsetof(contract::PolicyFile, cards);
  h.card_stride = sizeof(contract::PolicyCard);
  h.card_count = kCards;
  h.gates_offset = offsetof(contract::PolicyFile, gates);
  h.gate_stride = sizeof(contract::PolicyGate);
  for (int i = 0; i < kCards; ++i) {
    contract::PolicyCard& card = g_policy->cards[i];
    // Not the driver's order: what counts is the UUID.
    std::memset(card.uuid, kCards - i, 16);
    card.limit_bytes = std::uint64_t{10} << 30;
    card.ceiling_bytes = std::uint64_t{64} << 30;
    card.compute_percent = 100;
    card.context_bytes = kContextBytes;
  }
  auto* ledger = static_cast<contract::LedgerFile*>(
      MakeFile(g_directory + "/ledger", sizeof(contract::LedgerFile)));
  contract::InitLedger(*ledger);
  contract::OpenLedger(ledger, sizeof *ledger, &g_ledger);
  setenv("TESSERA_SLICE_DIR", name, 1);
  std::atexit([] {
    unlink((g_directory + "/policy").c_str());
    unlink((g_directory + "/ledger").c_str());
    rmdir(g_directory.c_str());
  });
}

int SliceCard(int device) { return kCards - 1 - device; }

void SetLimit(int card, std::uint64_t bytes) {
  contract::Store(g_policy->cards[SliceCard(card)].limit_bytes, bytes);
}
void SetKnownContextBytes(std::uint64_t bytes) {
  for (contract::PolicyCard& card : g_policy->cards) card.context_bytes = bytes;
}
contract::LedgerView& Ledger() { return g_ledger; }
std::uint64_t LedgerBytes(int card) {
  return contract::WordBytes(contract::Load(g_ledger.Card(SliceCard(card)).total));
}
std::uint64_t Held(int card, contract::Kind kind) {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < g_ledger.SlotsInUse(); ++i) {
    sum += contract::WordBytes(
        contract::Load(g_ledger.Slot(i).cards[SliceCard(card)].held[static_cast<int>(kind)]));
  }
  return sum;
}
std::uint64_t Denied(int card) {
  return contract::Load(g_ledger.Card(SliceCard(card)).denied_count);
}
const std::string& SliceDirectory() { return g_directory; }

}  // namespace tessera::fence::testing
