#include "sim/tool/show.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstring>

#include "sim/nodes/node_description.h"

namespace tessera::sim {
namespace {

constexpr const char* kEngines[kMaxEngines] = {"compute", "copy-in", "copy-out"};

template <typename... Values>
std::string Print(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

unsigned long long MiB(std::uint64_t bytes) { return bytes >> 20; }

std::string Text(const char* text, std::size_t size) {
  return std::string(text, strnlen(text, size));
}

// Slots with something on the card.
template <typename Visit>
void EachUser(const NodeState& node, std::uint32_t card, Visit&& visit) {
  const std::uint64_t high = std::min<std::uint64_t>(node.slots_high.load(), kMaxProcesses);
  for (std::uint64_t i = 0; i < high; ++i) {
    const ProcessSlot& slot = node.processes[i];
    const CardProcess& on_card = slot.cards[card];
    if (slot.owner.load() == 0 || (on_card.contexts.load() == 0 && HeldBytes(on_card) == 0))
      continue;
    visit(slot, on_card);
  }
}

template <typename Visit>
void EachFault(const NodeState& node, Visit&& visit) {
  for (const Fault& fault : node.faults) {
    if (fault.active.load() == 1) visit(fault);
  }
}

}  // namespace

std::string ShowText() {
  NodeState& node = *AttachNode();
  std::string out = Print("driver %s, CUDA %u.%u, seed %llu\n",
                          Text(node.driver_version, sizeof node.driver_version).c_str(),
                          node.driver_version_cuda / 1000, node.driver_version_cuda % 1000 / 10,
                          static_cast<unsigned long long>(node.seed));
  for (std::uint32_t card = 0; card < node.card_count; ++card) {
    const CardSpec& spec = node.specs[card];
    const CardState& state = node.cards[card];
    out += Print("\ncard %u  %-32.32s %s\n", card, spec.name, state.lost.load() != 0 ? "LOST" : "");
    out +=
        Print("  %s  used %llu of %llu MiB\n", CardUuidText(spec).c_str(),
              MiB(UsedBytes(static_cast<int>(card))), MiB(spec.memory_bytes - spec.reserved_bytes));
    for (std::uint32_t i = 0; i < spec.mig_count; ++i) {
      const MigSpec& mig = spec.mig[i];
      out += Print("  %s  %-8s used %llu of %llu MiB\n", MigUuidText(mig).c_str(),
                   Text(mig.profile, sizeof mig.profile).c_str(),
                   MiB(UsedOnMigDevice(static_cast<int>(card), static_cast<int>(i))),
                   MiB(MigCapacity(mig)));
    }
    for (int engine = 0; engine < kMaxEngines; ++engine) {
      const Timeline timeline = PeekTimeline(node, static_cast<int>(card), engine, nullptr);
      std::uint64_t waiting = 0;
      for (std::uint64_t i = 0; i < timeline.count; ++i) waiting += timeline.entries[i].backlog_ns;
      if (timeline.busy_ns_total == 0 && waiting == 0) continue;
      out += Print("  %-8s busy %.3f s, waiting %.3f ms\n", kEngines[engine],
                   static_cast<double>(timeline.busy_ns_total) / 1e9,
                   static_cast<double>(waiting) / 1e6);
    }
    EachUser(node, card, [&](const ProcessSlot& slot, const CardProcess& on_card) {
      out +=
          Print("  pid %-8d %-16s %6llu MiB  %llu contexts  busy %.3f s\n",
                static_cast<int>(VisiblePid(slot)), Text(slot.command, sizeof slot.command).c_str(),
                MiB(HeldBytes(on_card)), static_cast<unsigned long long>(on_card.contexts.load()),
                static_cast<double>(on_card.busy_ns.load()) / 1e9);
    });
    if (const std::uint64_t xids = state.xid_sequence.load()) {
      out += Print("  xids %llu, last %llu\n", static_cast<unsigned long long>(xids),
                   static_cast<unsigned long long>(state.xids[(xids - 1) % kMaxXids].code.load()));
    }
  }
  EachFault(node, [&](const Fault& fault) {
    out += Print("\nfault %s  card %d  result %d  delay %.3f ms  %u permille  hits %llu\n",
                 Text(fault.call, sizeof fault.call).c_str(), fault.card, fault.result,
                 static_cast<double>(fault.delay_ns) / 1e6, fault.permille,
                 static_cast<unsigned long long>(fault.hits.load()));
  });
  return out;
}

std::string ShowJson() {
  NodeState& node = *AttachNode();
  boost::json::array cards;
  for (std::uint32_t card = 0; card < node.card_count; ++card) {
    const CardSpec& spec = node.specs[card];
    const CardState& state = node.cards[card];
    const std::uint64_t used =
        UsedBytes(static_cast<int>(card));  // first: it takes out who is gone
    boost::json::array processes, engines, migs;
    for (std::uint32_t i = 0; i < spec.mig_count; ++i) {
      migs.push_back(
          {{"uuid", MigUuidText(spec.mig[i])},
           {"profile", Text(spec.mig[i].profile, sizeof spec.mig[i].profile)},
           {"memory_bytes", MigCapacity(spec.mig[i])},
           {"used_bytes", UsedOnMigDevice(static_cast<int>(card), static_cast<int>(i))}});
    }
    EachUser(node, card, [&](const ProcessSlot& slot, const CardProcess& on_card) {
      processes.push_back({{"pid", VisiblePid(slot)},
                           {"command", Text(slot.command, sizeof slot.command)},
                           {"bytes", HeldBytes(on_card)},
                           {"contexts", on_card.contexts.load()},
                           {"busy_ns", on_card.busy_ns.load()}});
    });
    for (int engine = 0; engine < kMaxEngines; ++engine) {
      const Timeline timeline = PeekTimeline(node, static_cast<int>(card), engine, nullptr);
      std::uint64_t waiting = 0;
      for (std::uint64_t i = 0; i < timeline.count; ++i) waiting += timeline.entries[i].backlog_ns;
      engines.push_back({{"name", kEngines[engine]},
                         {"busy_ns", timeline.busy_ns_total},
                         {"waiting_ns", waiting}});
    }
    cards.push_back({{"index", card},
                     {"name", Text(spec.name, sizeof spec.name)},
                     {"uuid", CardUuidText(spec)},
                     {"memory_bytes", spec.memory_bytes},
                     {"reserved_bytes", spec.reserved_bytes},
                     {"used_bytes", used},
                     {"lost", state.lost.load() != 0},
                     {"ecc_corrected", state.ecc_corrected.load()},
                     {"ecc_uncorrected", state.ecc_uncorrected.load()},
                     {"xids", state.xid_sequence.load()},
                     {"mig", migs},
                     {"engines", engines},
                     {"processes", processes}});
  }
  boost::json::array faults;
  EachFault(node, [&](const Fault& fault) {
    faults.push_back({{"call", Text(fault.call, sizeof fault.call)},
                      {"card", fault.card},
                      {"result", fault.result},
                      {"delay_ns", fault.delay_ns},
                      {"permille", fault.permille},
                      {"hits", fault.hits.load()}});
  });
  const boost::json::object all{
      {"driver_version", Text(node.driver_version, sizeof node.driver_version)},
      {"cuda_version", node.driver_version_cuda},
      {"seed", node.seed},
      {"cards", cards},
      {"faults", faults}};
  return boost::json::serialize(all) + "\n";
}

}  // namespace tessera::sim
