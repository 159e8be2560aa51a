#include "cli/testing/sample.h"

#include "driver/testing/fake_nvml.h"
#include "model/quantity.h"

namespace tessera::cli::testing {
namespace {

using model::kMib;

node::LedgerSlotView Slot(pid_t pid, std::uint64_t linear_mib, std::uint64_t context_mib) {
  node::LedgerSlotView slot;
  slot.owner = {pid, 1000};
  slot.live = true;
  slot.held = {(linear_mib + context_mib) * kMib};
  slot.held_by_kind.assign(contract::kKinds, 0);
  slot.held_by_kind[0] = linear_mib * kMib;
  slot.held_by_kind[7] = context_mib * kMib;
  return slot;
}

watch::SliceProcess Process(pid_t pid, const char* command, const char* line,
                            std::uint64_t held_mib) {
  watch::SliceProcess process;
  process.process.identity = {pid, 1000};
  process.process.command = command;
  process.process.state = 'S';
  process.command_line = line;
  process.mapped = watch::Mapped{true, true, true};
  process.policy_is_ours = true;
  process.slot = 0;
  process.held = {held_mib * kMib};
  process.driver = {held_mib * kMib};
  return process;
}

watch::SliceFacts Slice(const char* name, std::uint64_t mib, std::uint32_t cores) {
  watch::SliceFacts slice;
  slice.record.slice.id = std::string(name) + "-0f3a9c21";
  slice.record.slice.name = name;
  slice.record.slice.cards.push_back(
      {*model::ParseUuid(driver::testing::A10G(0).uuid), mib * kMib, cores});
  slice.record.command = "python serve.py";
  slice.record.created_s = 1'000'000;
  slice.policy = node::PolicyView{};
  slice.policy->cards.push_back(
      {slice.record.slice.cards[0].uuid, mib * kMib, mib * kMib, 23028 * kMib, cores, 1, true});
  slice.ledger = node::LedgerView{};
  return slice;
}

}  // namespace

Observed SampleMachine() {
  Observed observed;
  watch::Snapshot& snapshot = observed.snapshot;
  snapshot.taken_s = 1'000'000 + 754;
  snapshot.state_path = "/run/tessera";
  snapshot.driver =
      driver::DriverInfo{"580.95.05", 13000, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", false};

  watch::SliceFacts chat = Slice("chat", 10000, 30);
  chat.record.slice.priority = model::Priority::kHigh;
  chat.ledger->cards.push_back({2348 * kMib, 2348 * kMib, 2600 * kMib, 0, 0, false});
  chat.ledger->slots.push_back(Slot(1234, 2000, 348));
  chat.processes.push_back(Process(1234, "python", "python serve.py --port 8000", 2348));

  watch::SliceFacts batch = Slice("batch-embedding-of-the-archive", 8000, 0);
  batch.ledger->cards.push_back({8000 * kMib, 8000 * kMib, 8000 * kMib, 17, 512 * kMib, false});
  batch.ledger->slots.push_back(Slot(77, 7652, 348));
  batch.processes.push_back(Process(
      77, "embed", "/opt/models/bin/embed --input /data/archive/2026 --batch 512 --fp16", 8000));
  watch::SliceProcess hole = Process(4242, "static-miner", "./static-miner", 0);
  hole.slot = std::nullopt;
  hole.mapped = watch::Mapped{};
  hole.driver = {900 * kMib};
  batch.processes.push_back(hole);
  batch.remarks.push_back("ledger: names pid 1, not in this slice");
  snapshot.slices = {chat, batch};

  watch::CardFacts card;
  card.card = driver::testing::A10G(0);
  card.usage = driver::CardUsage{23028 * kMib, 297 * kMib, 11700 * kMib, 11328 * kMib, 64, 30, {}};
  card.promised_bytes = 18000 * kMib;
  card.held_bytes = 10348 * kMib;
  card.promised_cores = 30;
  card.slices = 2;
  snapshot.cards.push_back(card);
  watch::CardFacts lost;
  lost.index = 1;
  lost.card = Fail(Code::kDeadlineExceeded, "card 1: no answer in time");
  lost.usage = Fail(Code::kDeadlineExceeded, "card 1: no answer in time");
  snapshot.cards.push_back(lost);

  snapshot.foreign.push_back({0, 999, "/usr/lib/xorg/Xorg :0", 120 * kMib});
  snapshot.foreign.push_back({0, 31337, "", std::nullopt});
  snapshot.broken.push_back(
      {"/run/tessera/slices/old-1",
       {Code::kUnimplemented, "policy: layout 2, this tessera reads layout 1"}});
  observed.findings = watch::Judge(snapshot);
  return observed;
}

}  // namespace tessera::cli::testing
