#include "model/wire/node_register.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/resources.h"
#include "model/wire/text.h"

namespace tessera::model::wire {
namespace {

using ::testing::HasSubstr;

constexpr const char* kName = contract::kNvidiaAnnotations.node_register;

Result<std::vector<RegisteredCard>> Read(const std::string& value) {
  return ReadNodeRegister(kName, value);
}

std::string ErrorOf(const std::string& value) {
  const auto cards = Read(value);
  EXPECT_FALSE(cards) << value;
  if (cards) return "";
  EXPECT_EQ(cards.error().code, Code::kInvalidArgument);
  EXPECT_EQ(cards.error().message.rfind(kName, 0), 0u) << cards.error().message;
  EXPECT_EQ(cards.error().message.find('\n'), std::string::npos);
  EXPECT_LT(cards.error().message.size(), 400u);
  return cards.error().message;
}

RegisteredCard Card() {
  RegisteredCard card;
  card.id = "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec";
  card.count = 10;
  card.memory_mib = 32768;
  card.cores = 100;
  card.type = "NVIDIA-Tesla V100-PCIE-32GB";
  card.mode = "hami-core";
  card.healthy = true;
  return card;
}

// The order of the keys and what is left out are HAMi's.
TEST(NodeRegister, WritesTheCurrentFormByteForByte) {
  RegisteredCard second = Card();
  second.id = "GPU-2";
  second.index = 1;
  second.numa = 1;
  second.mode = "mig";
  second.healthy = false;
  second.mig_profiles = {{"1g.10gb", 9728, 14, 1, {{0, 1}, {1, 1}}}};
  const std::string value =
      R"([{"id":"GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec","count":10,"devmem":32768,"devcore":100,)"
      R"("type":"NVIDIA-Tesla V100-PCIE-32GB","mode":"hami-core","health":true},)"
      R"({"id":"GPU-2","index":1,"count":10,"devmem":32768,"devcore":100,)"
      R"("type":"NVIDIA-Tesla V100-PCIE-32GB","numa":1,"mode":"mig","migProfiles":[)"
      R"({"name":"1g.10gb","memoryMB":9728,"core":14,"sliceCount":1,)"
      R"("placements":[{"start":0,"size":1},{"start":1,"size":1}]}]}])";
  EXPECT_EQ(WriteNodeRegister(kName, {Card(), second}).value(), value);
  EXPECT_EQ(Read(value).value(), (std::vector<RegisteredCard>{Card(), second}));
  EXPECT_EQ(WriteNodeRegister(kName, {}).value(), "[]");
  EXPECT_TRUE(Read("[]").value().empty());
}

TEST(NodeRegister, EscapesAsGoDoes) {
  RegisteredCard card;
  card.id = "A";
  card.type = "a<b>&\"\\/\u00e9";
  const std::string value = R"([{"id":"A","type":"a\u003cb\u003e\u0026\"\\/é"}])";
  EXPECT_EQ(WriteNodeRegister(kName, {card}).value(), value);
  EXPECT_EQ(Read(value).value().at(0), card);
}

TEST(NodeRegister, ReadsTheTextFormsOfOlderVersions) {
  const std::string seven =
      "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:";
  EXPECT_EQ(Read(seven).value(), std::vector<RegisteredCard>{Card()});
  EXPECT_EQ(Read(seven.substr(0, seven.size() - 1)).value(), std::vector<RegisteredCard>{Card()});

  const auto eight = Read("GPU-2,10,23034,100,NVIDIA-NVIDIA L4,1,false,3:").value();
  EXPECT_EQ(eight.at(0).index, 3u);
  EXPECT_EQ(eight.at(0).numa, 1);
  EXPECT_EQ(eight.at(0).mode, "hami-core");
  EXPECT_FALSE(eight.at(0).healthy);

  const auto nine = Read("GPU-3,10,81920,300,NVIDIA-A100,-1,true,7,mig:" + seven).value();
  ASSERT_EQ(nine.size(), 2u);
  EXPECT_EQ(nine[0].index, 7u);
  EXPECT_EQ(nine[0].numa, -1);
  EXPECT_EQ(nine[0].mode, "mig");
  EXPECT_EQ(nine[0].cores, 300u);
  EXPECT_EQ(nine[1], Card());
}

// Keys of other versions and vendors are stepped over; null is nothing, as in Go.
TEST(NodeRegister, StepsOverWhatItDoesNotKnow) {
  const auto cards =
      Read(R"( [{"id":"A","numa":null,"devicevendor":"NVIDIA","custominfo":{"a":[1,{"b":2}]},)"
           R"("migtemplate":[[{"name":"x"}]],"devicepairscore":{},"migProfiles":null}] )");
  ASSERT_TRUE(cards) << cards.error().message;
  RegisteredCard card;
  card.id = "A";
  EXPECT_EQ(*cards, std::vector<RegisteredCard>{card});
}

TEST(NodeRegister, NamesWhatIsWrong) {
  const std::string legal_forms = "is not legal: a JSON list of cards, or UUID,count,memory,cores";
  for (const char* value : {"", ":", "::"}) EXPECT_THAT(ErrorOf(value), HasSubstr(legal_forms));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("card 1: '{}' is not legal"));
  EXPECT_THAT(ErrorOf("[{]"), HasSubstr("'[{]' is not legal: JSON, and this is not"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("card 1: '1' is not legal: an object"));
  EXPECT_THAT(ErrorOf("[{}]"), HasSubstr("card 1: id: '' is not legal: 1 to 128"));
  EXPECT_THAT(ErrorOf(R"([{"id":7}])"), HasSubstr("card 1: id: '7' is not legal: text"));
  EXPECT_THAT(ErrorOf(R"([{"id":"A;B"}])"), HasSubstr("card 1: id: 'A;B' is not legal"));
  EXPECT_THAT(ErrorOf(R"([{"id":"A","type":"a\u001b[2J"}])"), HasSubstr("card 1: type: 'a?[2J'"));
  EXPECT_THAT(ErrorOf(R"([{"id":"A"},{"id":"A"}])"), HasSubstr("card 2: id: 'A' is not legal"));
  for (const char* number : {"-1", "1.5", "2147483648", "18446744073709551615", "\"8\"", "1e3"}) {
    EXPECT_THAT(ErrorOf(std::string(R"([{"id":"A","devmem":)") + number + "}]"),
                HasSubstr("a whole number, 0 to 2147483647"))
        << number;
  }
  EXPECT_THAT(ErrorOf(R"([{"id":"A","numa":-2}])"), HasSubstr("card 1: numa: '-2' is not legal"));
  EXPECT_THAT(ErrorOf(R"([{"id":"A","health":1}])"), HasSubstr("health: '1' is not legal: true"));
  EXPECT_THAT(ErrorOf(R"([{"id":"A","migProfiles":[{"name":"p","placements":[{"size":-1}]}]}])"),
              HasSubstr("card 1: migProfiles: placements: size: '-1' is not legal"));
  EXPECT_THAT(ErrorOf("A,1,2,3,T,0:"), HasSubstr("card 1: 'A,1,2,3,T,0' is not legal: UUID,count"));
  EXPECT_THAT(ErrorOf("A,1,2,3,T,0,true,0,mig,x:"), HasSubstr("is not legal: UUID,count"));
  EXPECT_THAT(ErrorOf("A,x,2,3,T,0,true:"), HasSubstr("card 1: count: 'x' is not legal"));
  EXPECT_THAT(ErrorOf("A,1,-2,3,T,0,true:"), HasSubstr("card 1: memory: '-2' is not legal"));
  EXPECT_THAT(ErrorOf("A,1,2,3.5,T,0,true:"), HasSubstr("card 1: cores: '3.5' is not legal"));
  EXPECT_THAT(ErrorOf("A,1,2,3,T,x,true:"), HasSubstr("card 1: numa: 'x' is not legal"));
  EXPECT_THAT(ErrorOf("A,1,2,3,T,0,yes:"), HasSubstr("card 1: health: 'yes' is not legal: true"));
  EXPECT_THAT(ErrorOf("A,1,2,3,T,0,true,-1:"), HasSubstr("card 1: index: '-1' is not legal"));
  EXPECT_THAT(ErrorOf("no device"), HasSubstr("card 1: 'no device' is not legal"));
}

TEST(NodeRegister, InputIsBounded) {
  EXPECT_THAT(ErrorOf(std::string(kMaxAnnotationBytes + 1, ':')), HasSubstr("262144 bytes"));
  EXPECT_THAT(ErrorOf(std::string(kMaxAnnotationBytes, '[')), HasSubstr("JSON, and this is not"));
  std::string many = "[";
  for (std::size_t i = 0; i <= kMaxRegisteredCards; ++i) {
    many += (i > 0 ? "," : "") + std::string("{\"id\":\"") + std::to_string(i) + "\"}";
  }
  EXPECT_THAT(ErrorOf(many + "]"), HasSubstr("at most 1024 cards"));
}

TEST(NodeRegister, WritesNothingThatItWouldNotRead) {
  for (const char* id : {"", "a,b", "a:b", "a;b", "a\nb"}) {
    RegisteredCard card = Card();
    card.id = id;
    EXPECT_FALSE(WriteNodeRegister(kName, {card})) << id;
  }
  RegisteredCard card = Card();
  card.memory_mib = 2'147'483'648u;
  EXPECT_FALSE(WriteNodeRegister(kName, {card}));
  EXPECT_FALSE(WriteNodeRegister(kName, {Card(), Card()}));
}

}  // namespace
}  // namespace tessera::model::wire
