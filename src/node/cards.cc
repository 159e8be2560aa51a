#include "node/cards.h"

#include <algorithm>
#include <boost/json.hpp>

#include "driver/nvml.h"
#include "node/ask_child.h"

namespace tessera::node {
namespace {

namespace json = boost::json;

constexpr std::int64_t kWaitNs =
    10'000'000'000;  // longer than the driver reader's own bound for a call

model::Card FromDriver(const driver::Card& from) {
  model::Card card;
  card.index = from.index;
  card.name = from.name;
  card.memory_bytes = from.memory_bytes;
  card.pci_domain = from.pci.domain;
  card.pci_bus = from.pci.bus;
  card.pci_device = from.pci.device;
  card.cc_major = static_cast<std::uint32_t>(std::max(from.cc_major, 0));
  card.cc_minor = static_cast<std::uint32_t>(std::max(from.cc_minor, 0));
  card.mig_enabled = from.mig_enabled;
  std::optional<model::Uuid> uuid = model::ParseUuid(from.uuid);
  if (uuid) {
    card.uuid = *uuid;
  } else {
    card.healthy = false;
    card.unhealthy_reason = "the driver gives no UUID that can be read";
  }
  return card;
}

// What the child sends: the node, or {"error": "..."}.
std::string AskDriver() {
  auto fail = [](const Error& error) {
    return json::serialize(json::object{{"error", error.message}});
  };
  Result<std::unique_ptr<driver::Nvml>> nvml = driver::OpenNvml({});
  if (!nvml) return fail(nvml.error());
  model::Node node;
  if (Result<driver::DriverInfo> info = (*nvml)->Driver()) node.driver_version = info->version;
  Result<std::vector<Result<driver::Card>>> cards = (*nvml)->Cards();
  if (!cards) return fail(cards.error());
  for (std::size_t i = 0; i < cards->size(); ++i) {
    const Result<driver::Card>& card = (*cards)[i];
    if (card) {
      node.cards.push_back(FromDriver(*card));
      continue;
    }
    model::Card lost;
    lost.index = static_cast<int>(i);
    lost.healthy = false;
    lost.unhealthy_reason = card.error().message;
    node.cards.push_back(lost);
  }
  return NodeText(node);
}

}  // namespace

Result<model::Node> ReadCards() {
  Result<std::string> text = AskChild(AskDriver, kWaitNs);
  if (!text) return Fail(text.error());
  return ParseNode(*text);
}

std::string NodeText(const model::Node& node) {
  json::array cards;
  for (const model::Card& card : node.cards) {
    cards.push_back(json::object{{"index", card.index},
                                 {"uuid", ToString(card.uuid)},
                                 {"name", card.name},
                                 {"memory_bytes", card.memory_bytes},
                                 {"pci_domain", card.pci_domain},
                                 {"pci_bus", card.pci_bus},
                                 {"pci_device", card.pci_device},
                                 {"cc_major", card.cc_major},
                                 {"cc_minor", card.cc_minor},
                                 {"mig_enabled", card.mig_enabled},
                                 {"healthy", card.healthy},
                                 {"unhealthy_reason", card.unhealthy_reason}});
  }
  return json::serialize(
      json::object{{"driver_version", node.driver_version}, {"cards", std::move(cards)}});
}

Result<model::Node> ParseNode(const std::string& text) {
  json::error_code error;
  json::value value = json::parse(text, error);
  if (error || !value.is_object())
    return Fail(Code::kUnavailable, "driver: no answer that can be read");
  const json::object& object = value.as_object();
  try {
    if (const json::value* failed = object.if_contains("error")) {
      return Fail(Code::kUnavailable, "driver: " + json::value_to<std::string>(*failed));
    }
    model::Node node;
    node.driver_version = json::value_to<std::string>(object.at("driver_version"));
    for (const json::value& entry : object.at("cards").as_array()) {
      const json::object& from = entry.as_object();
      model::Card card;
      card.index = json::value_to<int>(from.at("index"));
      card.uuid =
          model::ParseUuid(json::value_to<std::string>(from.at("uuid"))).value_or(model::Uuid{});
      card.name = json::value_to<std::string>(from.at("name"));
      card.memory_bytes = json::value_to<std::uint64_t>(from.at("memory_bytes"));
      card.pci_domain = json::value_to<std::uint32_t>(from.at("pci_domain"));
      card.pci_bus = json::value_to<std::uint32_t>(from.at("pci_bus"));
      card.pci_device = json::value_to<std::uint32_t>(from.at("pci_device"));
      card.cc_major = json::value_to<std::uint32_t>(from.at("cc_major"));
      card.cc_minor = json::value_to<std::uint32_t>(from.at("cc_minor"));
      card.mig_enabled = from.at("mig_enabled").as_bool();
      card.healthy = from.at("healthy").as_bool();
      card.unhealthy_reason = json::value_to<std::string>(from.at("unhealthy_reason"));
      node.cards.push_back(card);
    }
    return node;
  } catch (const std::exception& damaged) {
    return Fail(Code::kUnavailable,
                std::string("driver: no answer that can be read: ") + damaged.what());
  }
}

}  // namespace tessera::node
