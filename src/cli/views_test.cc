// Golden texts at 80 columns: tests/data/cli/*.txt. Written anew with TESSERA_WRITE_GOLDEN=1; read
// the difference before committing.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cli/doctor_view.h"
#include "cli/explain_view.h"
#include "cli/ps_view.h"
#include "cli/snapshot_json.h"
#include "cli/testing/sample.h"
#include "cli/text.h"
#include "cli/top_view.h"
#include "driver/testing/fake_nvml.h"
#include "model/quantity.h"

namespace tessera::cli {
namespace {

void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = std::string(TESSERA_GOLDEN) + "/" + name + ".txt";
  if (std::getenv("TESSERA_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(Columns(line), kTextWidth) << line;
    EXPECT_EQ(watch::Printable(line), line);
  }
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

DoctorFacts SickMachine() {
  DoctorFacts facts;
  facts.observed = testing::SampleMachine();
  facts.library = "/usr/lib/tessera/libtessera.so";
  facts.namespaces = Fail(Code::kPermissionDenied, "user namespace: Operation not permitted");
  facts.state = watch::StateDirectory{"/run/tessera", true, true};
  facts.second_wall = {false, "driver 580.95.05 has no memory limit per cgroup (R615 has)", ""};
  return facts;
}

DoctorFacts HealthyMachine() {
  DoctorFacts facts = SickMachine();
  facts.namespaces = {};
  watch::Snapshot& snapshot = facts.observed.snapshot;
  snapshot.slices.resize(1);
  snapshot.cards.resize(1);
  snapshot.foreign.clear();
  snapshot.broken.clear();
  facts.observed.findings.clear();
  return facts;
}

TEST(Golden, Ps) { ExpectGolden("ps", PsText(testing::SampleMachine(), kTextWidth)); }

TEST(Golden, PsOfAnEmptyMachine) {
  Observed observed;
  observed.snapshot.driver = Fail(Code::kUnavailable,
                                  "no NVIDIA driver: libnvidia-ml.so.1: cannot open shared object "
                                  "file: No such file or directory");
  ExpectGolden("ps-empty", PsText(observed, kTextWidth));
}

TEST(Golden, Top) {
  ExpectGolden(
      "top", Joined(TopFrame(testing::SampleMachine(), {80, 0}, {false, true}, "12:00:00", true)));
}

TEST(Golden, Doctor) {
  const DoctorFacts facts = SickMachine();
  ExpectGolden("doctor", DoctorText(Examine(facts), facts, kTextWidth));
}

TEST(Golden, DoctorOfAHealthyMachine) {
  const DoctorFacts facts = HealthyMachine();
  ExpectGolden("doctor-healthy", DoctorText(Examine(facts), facts, kTextWidth));
}

TEST(Golden, ExplainSlice) {
  const Observed observed = testing::SampleMachine();
  ExpectGolden("explain-slice",
               SliceText(observed, observed.snapshot.slices[1],
                         {false, "driver 580.95.05 has no memory limit per cgroup (R615 has)", ""},
                         kTextWidth));
}

model::Node OneCard() {
  model::Card card;
  card.uuid = *model::ParseUuid(driver::testing::A10G(0).uuid);
  card.name = "NVIDIA A10G";
  card.memory_bytes = 23028 * model::kMib;
  model::Node node;
  node.cards.push_back(card);
  return node;
}

placement::Placement PlaceOn(const model::Node& node, const model::Request& request) {
  model::Slice chat;
  chat.id = "chat-1";
  chat.name = "chat";
  chat.cards.push_back({node.cards[0].uuid, 20000 * model::kMib, 30});
  return placement::Place(node, {chat}, request);
}

TEST(Golden, ExplainRefused) {
  model::Request request;
  request.memory_bytes = 8000 * model::kMib;
  const model::Node node = OneCard();
  ExpectGolden("explain-refused", FitText(node, request, PlaceOn(node, request), kTextWidth));
}

TEST(Golden, ExplainFits) {
  model::Request request;
  request.memory_bytes = 3000 * model::kMib;
  request.cores = 20;
  const model::Node node = OneCard();
  ExpectGolden("explain-fits", FitText(node, request, PlaceOn(node, request), kTextWidth));
  const boost::json::object json = FitJson(node, request, PlaceOn(node, request));
  EXPECT_TRUE(json.at("fits").as_bool());
  EXPECT_TRUE(json.at("cards").at(0).at("chosen").as_bool());
}

TEST(Doctor, ExitCodeIsTheWorstLevel) {
  EXPECT_EQ(ExitCodeOf(Examine(HealthyMachine())), 0);
  DoctorFacts facts = HealthyMachine();
  facts.observed.snapshot.foreign.push_back({0, 999, "Xorg", 1});
  EXPECT_EQ(ExitCodeOf(Examine(facts)), 1);
  facts.preload = Fail(Code::kUnavailable, "ERROR: ld.so: object cannot be preloaded");
  EXPECT_EQ(ExitCodeOf(Examine(facts)), 2);
  EXPECT_EQ(ExitCodeOf(Examine(SickMachine())), 2);
  facts = HealthyMachine();
  facts.observed.snapshot.driver = Fail(Code::kUnavailable, "no NVIDIA driver");
  EXPECT_EQ(ExitCodeOf(Examine(facts)), 2);
}

TEST(Top, FitsEveryWindow) {
  const Observed observed = testing::SampleMachine();
  for (std::size_t columns : {1u, 20u, 40u, 79u, 80u, 81u, 120u, 200u}) {
    for (std::size_t rows : {1u, 2u, 5u, 10u, 24u, 100u}) {
      const auto frame = TopFrame(observed, {columns, rows}, {false, true}, "12:00:00", true);
      EXPECT_LE(frame.size(), rows);
      for (const std::string& line : frame)
        EXPECT_LE(Columns(line), columns) << columns << ": " << line;
    }
  }
}

TEST(Top, SmallWindowsKeepWhatMattersMost) {
  const Observed observed = testing::SampleMachine();
  // Name, figures and fence of a slice at every width that people use.
  for (std::size_t columns : {48u, 60u, 66u, 67u, 79u, 80u, 132u}) {
    const std::string frame =
        Joined(TopFrame(observed, {columns, 0}, {false, true}, "12:00:00", true));
    EXPECT_NE(frame.find("2,348 /   10,000"), std::string::npos) << columns;
    EXPECT_NE(frame.find(" live\n"), std::string::npos) << columns << "\n" << frame;
    EXPECT_NE(frame.find(" hole\n"), std::string::npos) << columns << "\n" << frame;
  }
  // Bars go before slices do.
  const std::string frame = Joined(TopFrame(observed, {80, 12}, {false, true}, "12:00:00", true));
  EXPECT_NE(frame.find("card 0  held 10,348 of 23,028 MiB, promised 78 %"), std::string::npos)
      << frame;
  EXPECT_NE(frame.find("chat"), std::string::npos) << frame;
  EXPECT_EQ(frame.find("\u2591\u2591\u2591\u2591\u2591\u2591\u2591\u2591\u2591\u2591\u2591\u2591"),
            std::string::npos);
}

TEST(Top, AWideWindowShowsWholeNames) {
  const std::string frame =
      Joined(TopFrame(testing::SampleMachine(), {132, 0}, {false, true}, "12:00:00", true));
  EXPECT_NE(frame.find("batch-embedding-of-the-archive "), std::string::npos) << frame;
}

TEST(Top, ColorsAreAlwaysTakenBack) {
  for (const std::string& line :
       TopFrame(testing::SampleMachine(), {80, 0}, {true, true}, "12:00:00", true)) {
    const std::size_t last = line.rfind("\x1b[");
    if (last == std::string::npos) continue;
    EXPECT_EQ(line.substr(last, 4), "\x1b[0m") << line;
  }
}

// What users wrote into their slices, files and command lines, all of it.
Observed MachineOfAnEnemy() {
  const std::string evil =
      "n\x1b[31m\nVICTIM\xc2\x9b"
      "2J\xff\x7f\xe2\x80\xae";
  Observed observed = testing::SampleMachine();
  watch::Snapshot& snapshot = observed.snapshot;
  snapshot.state_path = snapshot.state_note = evil;
  snapshot.state_error = Error{Code::kDataLoss, evil};
  for (watch::SliceFacts& slice : snapshot.slices) {
    slice.record.slice.name = slice.record.slice.id = slice.record.command = evil;
    slice.remarks = {evil};
    for (watch::SliceProcess& process : slice.processes)
      process.command_line = process.process.command = evil;
  }
  for (watch::CardFacts& card : snapshot.cards) {
    if (card.card) card.card->name = evil;
    card.usage = Fail(Code::kUnavailable, evil);
  }
  snapshot.broken = {{evil, Error{Code::kDataLoss, evil}}};
  for (watch::ForeignProcess& process : snapshot.foreign) process.command = evil;
  for (watch::Finding& finding : observed.findings)
    finding.text = finding.command = finding.slice_name = evil;
  return observed;
}

TEST(Enemy, NothingThatATerminalObeysComesOut) {
  DoctorFacts facts = SickMachine();
  facts.observed = MachineOfAnEnemy();
  facts.library = Fail(Code::kUnavailable, facts.observed.snapshot.state_path);
  const Observed& observed = facts.observed;
  const std::vector<Check> checks = Examine(facts);
  const std::string texts[] = {
      PsText(observed, kTextWidth),
      Joined(TopFrame(observed, {80, 0}, {false, true}, "12:00:00", false)),
      DoctorText(checks, facts, kTextWidth),
      SliceText(observed, observed.snapshot.slices[1], {}, kTextWidth),
      Pretty(DoctorJson(checks, facts)),
      Compact(ObservedJson(observed, "tessera.top/1")),
      Pretty(SliceJson(observed, observed.snapshot.slices[1], {}))};
  for (const std::string& text : texts) {
    EXPECT_TRUE(base::IsPlainText(text)) << base::Printable(text);
    EXPECT_EQ(text.find("\nVICTIM"), std::string::npos) << "a line of its own";
    EXPECT_NE(text.find("n?[31m?VICTIM"), std::string::npos) << text;
  }
}

// The keys that scripts may rely on: a change here is a change of docs/formats/cli-json.md and of
// the schema's number.
TEST(Json, PsKeepsItsKeys) {
  const boost::json::object json = ObservedJson(testing::SampleMachine(), "tessera.ps/1");
  const auto keys = [](const boost::json::value& value) {
    std::string names;
    for (const auto& member : value.as_object()) names += std::string(member.key()) + " ";
    return names;
  };
  EXPECT_EQ(keys(json), "schema taken state driver cards slices foreign broken findings ");
  EXPECT_EQ(keys(json.at("driver")), "found version cuda_version library memory_limits error ");
  EXPECT_EQ(keys(json.at("cards").at(0)),
            "index uuid name memory_bytes mig slices promised_bytes promised_cores held_bytes "
            "driver_used_bytes "
            "driver_free_bytes gpu_percent error ");
  const boost::json::value& slice = json.at("slices").at(0);
  EXPECT_EQ(keys(slice),
            "name id command owner_uid created age_seconds priority fencing fence bypass_action "
            "cards processes "
            "slots_refused remarks ");
  EXPECT_EQ(
      keys(slice.at("cards").at(0)),
      "uuid index promised_bytes cores limit_bytes held_bytes held_by_kind peak_bytes denied_count "
      "denied_last_bytes ");
  EXPECT_EQ(keys(slice.at("cards").at(0).at("held_by_kind")),
            "linear managed pool graph vmm array imported context ");
  EXPECT_EQ(keys(slice.at("processes").at(0)),
            "pid start_ticks command command_line belongs_by fence_mapped driver_mapped "
            "policy_is_ours slot held_bytes "
            "driver_bytes ");
  EXPECT_EQ(slice.at("cards").at(0).at("held_bytes").to_number<std::uint64_t>(),
            2348 * model::kMib);
  EXPECT_EQ(json.at("slices").at(1).at("fence").as_string(), "hole");
  EXPECT_EQ(keys(json.at("findings").at(0)), "kind slice pid command text action ");
  EXPECT_EQ(keys(json.at("foreign").at(0)), "card pid command driver_bytes ");
  EXPECT_TRUE(json.at("foreign").at(1).at("command").is_null());
}

TEST(Json, PrettyIsTheSameJson) {
  const boost::json::value json = ObservedJson(testing::SampleMachine(), "tessera.ps/1");
  EXPECT_EQ(boost::json::parse(Pretty(json)), json);
  EXPECT_EQ(Pretty(boost::json::parse(R"({"a":[],"b":{},"c":[1,{"d":"\u001b"}]})")),
            "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": \"?\"\n    "
            "}\n  ]\n}\n");
}

}  // namespace
}  // namespace tessera::cli
