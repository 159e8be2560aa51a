#include "cli/snapshot_json.h"

#include <array>
#include <boost/json.hpp>

#include "base/plain_text.h"
#include "model/quantity.h"

namespace tessera::cli {
namespace {

namespace json = boost::json;

json::object KindsJson(const node::LedgerView& ledger, std::size_t card, std::size_t cards) {
  json::object kinds;
  std::array<std::uint64_t, contract::kKinds> sums{};
  for (const node::LedgerSlotView& slot : ledger.slots) {
    if (!slot.live || slot.held_by_kind.size() < cards * contract::kKinds) continue;
    for (std::uint32_t kind = 0; kind < contract::kKinds; ++kind) {
      sums[kind] += slot.held_by_kind[card * contract::kKinds + kind];
    }
  }
  for (std::uint32_t kind = 0; kind < contract::kKinds; ++kind) kinds[KindName(kind)] = sums[kind];
  return kinds;
}

json::value OptionalJson(const std::optional<std::uint64_t>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::array SliceCardsJson(const watch::Snapshot& snapshot, const watch::SliceFacts& slice) {
  json::array cards;
  const std::vector<model::SliceCard>& promised = slice.record.slice.cards;
  for (std::size_t i = 0; i < promised.size(); ++i) {
    json::object card;
    const std::string uuid = model::ToString(promised[i].uuid);
    card["uuid"] = uuid;
    card["index"] = nullptr;
    for (const watch::CardFacts& facts : snapshot.cards) {
      if (!facts.card) continue;
      bool same = facts.card->uuid == uuid;
      for (const driver::MigInstance& instance : facts.card->mig) same |= instance.uuid == uuid;
      if (same) card["index"] = facts.index;
    }
    card["promised_bytes"] = promised[i].memory_bytes;
    card["cores"] = promised[i].cores;
    if (slice.policy && i < slice.policy->cards.size()) {
      card["limit_bytes"] = slice.policy->cards[i].limit_bytes;
    } else {
      card["limit_bytes"] = nullptr;
    }
    if (slice.ledger && i < slice.ledger->cards.size()) {
      const node::LedgerCardView& held = slice.ledger->cards[i];
      card["held_bytes"] = held.held_bytes;
      card["held_by_kind"] = KindsJson(*slice.ledger, i, promised.size());
      card["peak_bytes"] = held.peak_bytes;
      card["denied_count"] = held.denied_count;
      card["denied_last_bytes"] = held.denied_bytes;
    } else {
      for (const char* key :
           {"held_bytes", "held_by_kind", "peak_bytes", "denied_count", "denied_last_bytes"}) {
        card[key] = nullptr;
      }
    }
    cards.push_back(std::move(card));
  }
  return cards;
}

json::object ProcessJson(const watch::SliceProcess& process) {
  json::object object;
  object["pid"] = process.process.identity.pid;
  object["start_ticks"] = process.process.identity.start_ticks;
  object["command"] = process.process.command;
  object["command_line"] = process.command_line;
  switch (process.by) {
    case watch::Belongs::kMountNamespace:
      object["belongs_by"] = "mount-namespace";
      break;
    case watch::Belongs::kDescendant:
      object["belongs_by"] = "descendant";
      break;
    case watch::Belongs::kMapsLedger:
      object["belongs_by"] = "maps-ledger";
      break;
    case watch::Belongs::kSeesPolicy:
      object["belongs_by"] = "sees-policy";
      break;
    case watch::Belongs::kUserNamespace:
      object["belongs_by"] = "user-namespace";
      break;
  }
  object["fence_mapped"] =
      process.mapped ? json::value(process.mapped->fence) : json::value(nullptr);
  object["driver_mapped"] =
      process.mapped ? json::value(process.mapped->driver) : json::value(nullptr);
  object["policy_is_ours"] =
      process.policy_is_ours ? json::value(*process.policy_is_ours) : json::value(nullptr);
  object["slot"] = process.slot ? json::value(*process.slot) : json::value(nullptr);
  json::array held, driver;
  for (std::uint64_t bytes : process.held) held.push_back(bytes);
  for (const std::optional<std::uint64_t>& bytes : process.driver)
    driver.push_back(OptionalJson(bytes));
  object["held_bytes"] = std::move(held);
  object["driver_bytes"] = std::move(driver);
  return object;
}

// Every text in it printable: names and messages may be anybody's.
json::value Tamed(json::value value) {
  if (json::object* object = value.if_object()) {
    for (auto& member : *object) member.value() = Tamed(std::move(member.value()));
  } else if (json::array* array = value.if_array()) {
    for (json::value& element : *array) element = Tamed(std::move(element));
  } else if (json::string* text = value.if_string()) {
    *text = base::Printable({text->data(), text->size()});
  }
  return value;
}

void Indent(const json::value& value, std::string& out, std::size_t depth) {
  const std::string pad(depth * 2 + 2, ' ');
  if (value.is_object() && !value.get_object().empty()) {
    out += "{";
    const char* separator = "\n";
    for (const auto& [key, member] : value.get_object()) {
      out += separator + pad + json::serialize(json::string(key)) + ": ";
      Indent(member, out, depth + 1);
      separator = ",\n";
    }
    out += "\n" + std::string(depth * 2, ' ') + "}";
  } else if (value.is_array() && !value.get_array().empty()) {
    out += "[";
    const char* separator = "\n";
    for (const json::value& member : value.get_array()) {
      out += separator + pad;
      Indent(member, out, depth + 1);
      separator = ",\n";
    }
    out += "\n" + std::string(depth * 2, ' ') + "]";
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

const char* KindName(std::uint32_t kind) {
  constexpr std::array<const char*, contract::kKinds> kNames = {
      "linear", "managed", "pool", "graph", "vmm", "array", "imported", "context"};
  return kind < kNames.size() ? kNames[kind] : "unknown";
}

std::string FenceState(const watch::SliceFacts& slice) {
  bool live = false, unseen = false;
  for (const watch::SliceProcess& process : slice.processes) {
    bool on_card = !process.other_cards.empty();
    for (const auto& bytes : process.driver) on_card |= bytes.has_value();
    if (!process.mapped) {
      unseen |= on_card || process.slot.has_value();
    } else if (!process.mapped->fence && (process.mapped->driver || on_card)) {
      return "hole";
    } else {
      live |= process.slot.has_value() || (process.mapped->fence && process.mapped->ledger);
    }
  }
  return unseen ? "?" : live ? "live" : "idle";
}

json::object DriverJson(const watch::Snapshot& snapshot) {
  json::object object;
  object["found"] = snapshot.driver.has_value();
  object["version"] =
      snapshot.driver ? json::value(snapshot.driver->version) : json::value(nullptr);
  object["cuda_version"] =
      snapshot.driver ? json::value(snapshot.driver->cuda_version) : json::value(nullptr);
  object["library"] =
      snapshot.driver ? json::value(snapshot.driver->library) : json::value(nullptr);
  object["memory_limits"] = snapshot.driver && snapshot.driver->memory_limits;
  object["error"] =
      snapshot.driver ? json::value(nullptr) : json::value(snapshot.driver.error().message);
  return object;
}

json::array CardsJson(const watch::Snapshot& snapshot) {
  json::array cards;
  for (const watch::CardFacts& facts : snapshot.cards) {
    json::object card;
    card["index"] = facts.index;
    card["uuid"] = facts.card ? json::value(facts.card->uuid) : json::value(nullptr);
    card["name"] =
        facts.card ? json::value(watch::Printable(facts.card->name)) : json::value(nullptr);
    card["memory_bytes"] =
        facts.card ? json::value(facts.card->memory_bytes) : json::value(nullptr);
    card["mig"] = facts.card && facts.card->mig_enabled;
    card["slices"] = facts.slices;
    card["promised_bytes"] = facts.promised_bytes;
    card["promised_cores"] = facts.promised_cores;
    card["held_bytes"] = facts.held_bytes;
    card["driver_used_bytes"] =
        facts.usage ? json::value(facts.usage->used_bytes) : json::value(nullptr);
    card["driver_free_bytes"] =
        facts.usage ? json::value(facts.usage->free_bytes) : json::value(nullptr);
    card["gpu_percent"] = facts.usage && facts.usage->gpu_percent
                              ? json::value(*facts.usage->gpu_percent)
                              : json::value(nullptr);
    if (!facts.card) {
      card["error"] = facts.card.error().message;
    } else if (!facts.usage) {
      card["error"] = facts.usage.error().message;
    } else {
      card["error"] = nullptr;
    }
    cards.push_back(std::move(card));
  }
  return cards;
}

json::array SlicesJson(const watch::Snapshot& snapshot) {
  json::array slices;
  for (const watch::SliceFacts& facts : snapshot.slices) {
    json::object slice;
    slice["name"] = facts.record.slice.name;
    slice["id"] = facts.record.slice.id;
    slice["command"] = watch::Printable(facts.record.command);
    slice["owner_uid"] = facts.record.owner;
    slice["created"] = facts.record.created_s;
    slice["age_seconds"] = std::max<std::int64_t>(0, snapshot.taken_s - facts.record.created_s);
    slice["priority"] = model::ToString(facts.record.slice.priority);
    slice["fencing"] =
        facts.record.fencing == node::Fencing::kNamespace ? "namespace" : "environment";
    slice["fence"] = FenceState(facts);
    slice["bypass_action"] = watch::ToString(facts.record.bypass);
    slice["cards"] = SliceCardsJson(snapshot, facts);
    json::array processes;
    for (const watch::SliceProcess& process : facts.processes)
      processes.push_back(ProcessJson(process));
    slice["processes"] = std::move(processes);
    slice["slots_refused"] =
        facts.ledger ? json::value(facts.ledger->slots_refused) : json::value(nullptr);
    json::array remarks;
    for (const std::string& remark : facts.remarks) remarks.push_back(json::string(remark));
    slice["remarks"] = std::move(remarks);
    slices.push_back(std::move(slice));
  }
  return slices;
}

json::array ForeignJson(const watch::Snapshot& snapshot) {
  json::array foreign;
  for (const watch::ForeignProcess& process : snapshot.foreign) {
    json::object object;
    object["card"] = process.card;
    object["pid"] = process.pid;
    object["command"] =
        process.command.empty() ? json::value(nullptr) : json::value(process.command);
    object["driver_bytes"] = OptionalJson(process.bytes);
    foreign.push_back(std::move(object));
  }
  return foreign;
}

json::array BrokenJson(const watch::Snapshot& snapshot) {
  json::array broken;
  for (const node::Broken& slice : snapshot.broken) {
    json::object object;
    object["directory"] = watch::Printable(slice.directory);
    object["error"] = watch::Printable(slice.error.message);
    broken.push_back(std::move(object));
  }
  return broken;
}

json::array FindingsJson(const std::vector<watch::Finding>& findings) {
  json::array array;
  for (const watch::Finding& finding : findings) {
    json::object object;
    object["kind"] = watch::ToString(finding.kind);
    object["slice"] = finding.slice_name;
    object["pid"] = finding.process.pid ? json::value(finding.process.pid) : json::value(nullptr);
    object["command"] =
        finding.command.empty() ? json::value(nullptr) : json::value(finding.command);
    object["text"] = finding.text;
    object["action"] = watch::ToString(finding.action);
    array.push_back(std::move(object));
  }
  return array;
}

json::object StateJson(const watch::Snapshot& snapshot) {
  json::object state;
  state["path"] =
      snapshot.state_path.empty() ? json::value(nullptr) : json::value(snapshot.state_path);
  state["note"] =
      snapshot.state_note.empty() ? json::value(nullptr) : json::value(snapshot.state_note);
  state["error"] =
      snapshot.state_error ? json::value(snapshot.state_error->message) : json::value(nullptr);
  return state;
}

json::object ObservedJson(const Observed& observed, std::string_view schema) {
  json::object object;
  object["schema"] = schema;
  object["taken"] = observed.snapshot.taken_s;
  object["state"] = StateJson(observed.snapshot);
  object["driver"] = DriverJson(observed.snapshot);
  object["cards"] = CardsJson(observed.snapshot);
  object["slices"] = SlicesJson(observed.snapshot);
  object["foreign"] = ForeignJson(observed.snapshot);
  object["broken"] = BrokenJson(observed.snapshot);
  object["findings"] = FindingsJson(observed.findings);
  return object;
}

std::string Pretty(const json::value& value) {
  std::string out;
  Indent(Tamed(value), out, 0);
  return out + "\n";
}

std::string Compact(const json::value& value) { return json::serialize(Tamed(value)) + "\n"; }

}  // namespace tessera::cli
