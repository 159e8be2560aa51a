// What is written is read back as it was, whatever it is.
#include <gtest/gtest.h>

// Behind GoogleTest, which it does not include.
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "contract/resources.h"
#include "model/wire/handshake.h"
#include "model/wire/node_register.h"
#include "model/wire/pod_devices.h"
#include "model/wire/pod_state.h"
#include "model/wire/text.h"

namespace tessera::model::wire {
namespace {

rc::Gen<std::uint32_t> Count() { return rc::gen::inRange<std::uint32_t>(0, 2'147'483'648u); }

// Printable ASCII and a character of two bytes, with or without separators.
rc::Gen<std::string> Text(bool separators, std::size_t least) {
  const std::string legal = separators ? " azAZ09-._/\"\\<>&[]{},:;" : " azAZ09-._/\"\\<>&[]{}";
  return rc::gen::map(
      rc::gen::suchThat(rc::gen::container<std::string>(rc::gen::elementOf(legal)),
                        [least](const std::string& text) { return text.size() >= least; }),
      [](std::string text) {
        text.resize(std::min<std::size_t>(text.size(), 100));
        return text.size() % 7 == 3 ? text + "\u00e9" : text;
      });
}

rc::Gen<MigPlacement> Placement() {
  return rc::gen::build<MigPlacement>(rc::gen::set(&MigPlacement::start, Count()),
                                      rc::gen::set(&MigPlacement::size, Count()));
}

rc::Gen<MigProfile> Profile() {
  return rc::gen::build<MigProfile>(
      rc::gen::set(&MigProfile::name, Text(true, 1)),
      rc::gen::set(&MigProfile::memory_mib, Count()), rc::gen::set(&MigProfile::cores, Count()),
      rc::gen::set(&MigProfile::slices, Count()),
      rc::gen::set(&MigProfile::placements,
                   rc::gen::container<std::vector<MigPlacement>>(Placement())));
}

rc::Gen<RegisteredCard> Card() {
  return rc::gen::build<RegisteredCard>(
      rc::gen::set(&RegisteredCard::id, Text(false, 1)),
      rc::gen::set(&RegisteredCard::index, Count()), rc::gen::set(&RegisteredCard::count, Count()),
      rc::gen::set(&RegisteredCard::memory_mib, Count()),
      rc::gen::set(&RegisteredCard::cores, Count()),
      rc::gen::set(&RegisteredCard::type, Text(true, 0)),
      rc::gen::set(&RegisteredCard::numa, rc::gen::inRange<std::int32_t>(-1, 16)),
      rc::gen::set(&RegisteredCard::mode, Text(true, 0)),
      rc::gen::set(&RegisteredCard::mig_profiles,
                   rc::gen::resize(3, rc::gen::container<std::vector<MigProfile>>(Profile()))),
      rc::gen::set(&RegisteredCard::healthy, rc::gen::arbitrary<bool>()));
}

rc::Gen<PromisedDevice> Device() {
  return rc::gen::build<PromisedDevice>(
      rc::gen::set(&PromisedDevice::id, Text(false, 1)),
      rc::gen::set(&PromisedDevice::type, Text(false, 1)),
      rc::gen::set(&PromisedDevice::memory_mib,
                   rc::gen::map(Count(), [](std::uint32_t n) { return std::optional(n); })),
      rc::gen::set(&PromisedDevice::cores,
                   rc::gen::map(Count(), [](std::uint32_t n) { return std::optional(n); })));
}

RC_GTEST_PROP(WireRoundTrip, NodeRegister, ()) {
  const char* name = contract::kNvidiaAnnotations.node_register;
  auto cards = *rc::gen::resize(6, rc::gen::container<std::vector<RegisteredCard>>(Card()));
  for (std::size_t i = 0; i < cards.size(); ++i) cards[i].id += std::to_string(i);
  const auto value = WriteNodeRegister(name, cards);
  RC_ASSERT(value.has_value());
  RC_ASSERT(ReadNodeRegister(name, *value).value() == cards);
}

// The text form of 9 fields says the same as JSON, without MIG profiles.
RC_GTEST_PROP(WireRoundTrip, NodeRegisterText, ()) {
  RegisteredCard card = *Card();
  card.mig_profiles.clear();
  card.type = *Text(false, 0);
  card.mode = *Text(false, 0);
  const std::string value =
      card.id + ',' + std::to_string(card.count) + ',' + std::to_string(card.memory_mib) + ',' +
      std::to_string(card.cores) + ',' + card.type + ',' + std::to_string(card.numa) + ',' +
      (card.healthy ? "true" : "false") + ',' + std::to_string(card.index) + ',' + card.mode + ':';
  RC_PRE(value[value.find_first_not_of(' ')] != '[');  // that is how JSON begins
  const auto read = ReadNodeRegister("annotation", value);
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == std::vector<RegisteredCard>{card});
}

RC_GTEST_PROP(WireRoundTrip, PodDevices, ()) {
  const char* name = contract::kNvidiaAnnotations.allocated;
  const PodDevices devices = *rc::gen::resize(
      8, rc::gen::container<PodDevices>(rc::gen::container<std::vector<PromisedDevice>>(Device())));
  const auto value = WritePodDevices(name, devices);
  RC_ASSERT(value.has_value());
  RC_ASSERT(ReadPodDevices(name, *value).value() == devices);
  // However many containers have nothing at the end, each container keeps its own.
  const auto more = ReadPodDevices(name, *value + ";;").value();
  RC_ASSERT(ForContainers(name, more, 0, devices.size()).value() == devices);
}

RC_GTEST_PROP(WireRoundTrip, Handshake, ()) {
  const Handshake handshake{
      *rc::gen::element(Handshake::State::kRequesting, Handshake::State::kReported,
                        Handshake::State::kDeleted),
      *rc::gen::inRange<std::int64_t>(0, kMaxUnixSeconds + 1),
      {}};
  const auto value = WriteHandshake("annotation", handshake);
  RC_ASSERT(value.has_value());
  RC_ASSERT(ReadHandshake("annotation", *value).value() == handshake);
}

RC_GTEST_PROP(WireRoundTrip, UnixSeconds, ()) {
  const auto seconds = *rc::gen::inRange<std::int64_t>(0, kMaxUnixSeconds + 1);
  RC_ASSERT(ReadUnixSeconds("a", WriteUnixSeconds("a", seconds).value()).value() == seconds);
}

}  // namespace
}  // namespace tessera::model::wire
