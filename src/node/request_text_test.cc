#include "node/request_text.h"

#include <gtest/gtest.h>

namespace tessera::node {
namespace {

RequestText Typed() {
  RequestText text;
  text.memory = "8000";
  return text;
}

TEST(RequestText, EveryFieldArrives) {
  RequestText text{"10Gi",   "30",   "0,GPU-00000000-0000-0000-0000-000000000001",
                   "",       "chat", "high",
                   "spread", "kill"};
  Result<NewSlice> wanted = ParseRequest(text, {"python", "serve.py"});
  ASSERT_TRUE(wanted) << wanted.error().message;
  EXPECT_EQ(wanted->request.memory_bytes, 10240 * model::kMib);
  EXPECT_EQ(wanted->request.cores, 30u);
  EXPECT_EQ(wanted->request.card_count, 2u);
  EXPECT_EQ(wanted->request.only_cards.size(), 2u);
  EXPECT_EQ(wanted->request.name, "chat");
  EXPECT_EQ(wanted->request.priority, model::Priority::kHigh);
  EXPECT_EQ(wanted->request.policy, model::Policy::kSpread);
  EXPECT_EQ(wanted->bypass, contract::BypassAction::kKill);
  EXPECT_EQ(wanted->command, "python serve.py");
}

TEST(RequestText, CardsMayBeFewerThanNamed) {
  RequestText text = Typed();
  text.card = "0,1,2";
  text.cards = "1";
  EXPECT_EQ(ParseRequest(text, {"x"})->request.card_count, 1u);
}

TEST(RequestText, WhatIsTypedWinsOverAPod) {
  model::Request pod;
  pod.memory_percent = 50;
  pod.card_count = 2;
  pod.cores = 40;
  pod.priority = model::Priority::kHigh;
  Result<NewSlice> as_it_is = ParseRequest({}, {"x"}, &pod);
  ASSERT_TRUE(as_it_is) << as_it_is.error().message;
  EXPECT_FALSE(as_it_is->request.memory_bytes);
  EXPECT_EQ(as_it_is->request.memory_percent, 50u);
  EXPECT_EQ(as_it_is->request.card_count, 2u);
  EXPECT_EQ(as_it_is->request.priority, model::Priority::kHigh);
  RequestText text = Typed();
  text.cores = "10";
  Result<NewSlice> changed = ParseRequest(text, {"x"}, &pod);
  EXPECT_EQ(changed->request.memory_bytes, 8000 * model::kMib);
  EXPECT_EQ(changed->request.cores, 10u);
}

TEST(RequestText, EachErrorNamesItsField) {
  auto message = [](auto change) {
    RequestText text = Typed();
    change(text);
    Result<NewSlice> wanted = ParseRequest(text, {"x"});
    return wanted ? std::string("accepted") : wanted.error().message;
  };
  EXPECT_EQ(message([](RequestText& t) { t.memory = ""; }).rfind("--mem: missing", 0), 0u);
  EXPECT_EQ(message([](RequestText& t) { t.memory = "-5"; }).rfind("--mem: '-5'", 0), 0u);
  EXPECT_EQ(message([](RequestText& t) { t.cores = "0"; }).rfind("--cores: '0'", 0), 0u);
  EXPECT_EQ(message([](RequestText& t) { t.cards = "x"; }).rfind("--cards: 'x'", 0), 0u);
  EXPECT_EQ(message([](RequestText& t) { t.name = "a b"; }).rfind("--name: 'a b'", 0), 0u);
  EXPECT_EQ(message([](RequestText& t) { t.priority = "1"; }).rfind("--priority: '1'", 0), 0u);
  EXPECT_EQ(message([](RequestText& t) { t.policy = "best"; }).rfind("--policy: 'best'", 0), 0u);
  EXPECT_EQ(message([](RequestText& t) { t.on_bypass = "no"; }).rfind("--on-bypass: 'no'", 0), 0u);
  EXPECT_EQ(ParseRequest(Typed(), {}).error().message.rfind("command: missing", 0), 0u);
  EXPECT_EQ(ParseRequest(Typed(), {""}).error().message.rfind("command: missing", 0), 0u);
}

TEST(ChangeText, NeedsSomething) {
  EXPECT_FALSE(ParseChange({}));
  RequestText text;
  text.cores = "200";
  EXPECT_FALSE(ParseChange(text));
  text.cores = "20";
  EXPECT_EQ(ParseChange(text)->cores, 20u);
}

}  // namespace
}  // namespace tessera::node
