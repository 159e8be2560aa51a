// Paths, metadata, lists, lines of a watch and refusals, as the API server writes them.
#include <gtest/gtest.h>

#include "kube/objects/list.h"
#include "kube/objects/meta.h"
#include "kube/objects/path.h"
#include "kube/objects/reader.h"
#include "kube/objects/status.h"

namespace tessera::kube {
namespace {

TEST(Path, BuildsWhatTheApiServes) {
  EXPECT_EQ(CollectionPath(kPods).value(), "/api/v1/pods");
  EXPECT_EQ(CollectionPath(kPods, "a").value(), "/api/v1/namespaces/a/pods");
  EXPECT_EQ(CollectionPath(kLeases, "a").value(),
            "/apis/coordination.k8s.io/v1/namespaces/a/leases");
  EXPECT_EQ(ObjectPath(kNodes, "", "n1").value(), "/api/v1/nodes/n1");
  EXPECT_EQ(ObjectPath(kPods, "a", "p", "binding").value(), "/api/v1/namespaces/a/pods/p/binding");
  EXPECT_EQ(ApiVersion(kPods), "v1");
  EXPECT_EQ(ApiVersion(kLeases), "coordination.k8s.io/v1");
}

TEST(Path, LetsNoNameLeaveItsPlace) {
  for (const char* name : {"", ".", "..", "a/b", "a?b", "a#b", "a%2fb", "a b", "\xc3\xa4"}) {
    EXPECT_EQ(ObjectPath(kNodes, "", name).error().code, Code::kInvalidArgument) << name;
    EXPECT_FALSE(ObjectPath(kPods, name, "p")) << name;
  }
  EXPECT_TRUE(ObjectPath(kNodes, "", std::string(253, 'a')));
  EXPECT_FALSE(ObjectPath(kNodes, "", std::string(254, 'a')));
  EXPECT_FALSE(ObjectPath(kNodes, "a", "n"));
  EXPECT_FALSE(ObjectPath(kPods, "", "p"));
  EXPECT_EQ(ObjectPath(kNodes, "", "a/b").error().message,
            "name 'a/b': legal are 1 to 253 letters, digits, '-', '.', ':' and '_'");
}

Result<ObjectPtr> Read(std::string text) {
  ObjectPtr object;
  const Status done =
      ReadJson(text, [&](JsonValue& root) { return Into(ReadObjectMeta(root), object); });
  if (!done) return Fail(done.error());
  return object;
}

std::string ErrorIn(const std::string& text) {
  const auto object = Read(text);
  return object ? "none" : object.error().message;
}

constexpr const char* kPod = R"({"kind":"Pod","apiVersion":"v1","metadata":{
  "name":"p\u00e4\n","namespace":"a","uid":"u1","resourceVersion":"12","generation":3,
  "creationTimestamp":"2026-11-30T14:22:10Z","deletionTimestamp":null,
  "labels":{"z":"1","a":"x \"y\"","z":"2"},"annotations":{"b/c":"{\"d\":[1]}"},
  "finalizers":["f1","f2"],"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}],
  "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"u2","controller":true}]},
  "spec":{"containers":[{"name":"c","env":[]}]},"new":1e3})";

TEST(Meta, ReadsStringsUnescapedAndSkipsTheRest) {
  const ObjectMeta meta = Read(kPod).value()->meta;
  EXPECT_EQ(meta.name, "p\xc3\xa4\n");
  EXPECT_EQ(meta.uid, "u1");
  EXPECT_EQ(meta.resource_version, "12");
  EXPECT_EQ(meta.generation, 3);
  EXPECT_EQ(meta.created_micros, 1796048530'000000);
  EXPECT_EQ(meta.deleted_micros, std::nullopt);
  ASSERT_EQ(meta.labels.size(), 2u);
  EXPECT_EQ(*Find(meta.labels, "a"), "x \"y\"");
  EXPECT_EQ(*Find(meta.labels, "z"), "2");  // the last of equal keys, as in Go
  EXPECT_EQ(Find(meta.labels, "b"), nullptr);
  EXPECT_EQ(*Find(meta.annotations, "b/c"), R"({"d":[1]})");
  EXPECT_EQ(meta.finalizers, (std::vector<std::string>{"f1", "f2"}));
  EXPECT_EQ(meta.owners, (std::vector<OwnerReference>{{"apps/v1", "ReplicaSet", "r", "u2", true}}));
  EXPECT_EQ(KeyOf(meta), "a/p\xc3\xa4\n");
}

TEST(Meta, ErrorsNameTheField) {
  EXPECT_EQ(ErrorIn(R"({"metadata":{"name":5}})"), "metadata.name: a string is needed");
  EXPECT_EQ(ErrorIn(R"({"metadata":[]})"), "metadata: an object is needed");
  EXPECT_EQ(ErrorIn(R"({"metadata":{"labels":{"a":[]}}})"),
            "metadata.labels.a: a string is needed");
  EXPECT_EQ(ErrorIn(R"({"metadata":{"ownerReferences":[{},{"uid":true}]}})"),
            "metadata.ownerReferences[1].uid: a string is needed");
  EXPECT_EQ(ErrorIn(R"({"metadata":{"generation":"1"}})"),
            "metadata.generation: a whole number is needed");
  EXPECT_EQ(ErrorIn(R"({"metadata":{"creationTimestamp":"today"}})"),
            "metadata.creationTimestamp: not an RFC 3339 time");
  EXPECT_EQ(ErrorIn("[]"), "an object is needed");
}

TEST(Meta, RefusesBrokenText) {
  for (const char* text :
       {"", "{", R"({"metadata":{})", "{} {}", "{\"a\":\"\xff\"}",
        R"({"metadata":{"name":"\ud800"}})", "nonsense", R"({"metadata":{"name)"}) {
    const auto object = Read(text);
    ASSERT_FALSE(object) << text;
    EXPECT_EQ(object.error().code, Code::kDataLoss);
  }
  std::string deep = R"({"metadata":{"x":)" + std::string(100'000, '[');
  EXPECT_FALSE(Read(deep));
}

TEST(Reader, ReadsAnotherTextInAHandler) {
  std::string outer = R"({"a":{"name":"x"},"b":2})", inner = R"({"c":1})";
  std::int64_t c = 0, b = 0;
  const Status done = ReadJson(outer, [&](JsonValue& root) {
    return root.Object([&](std::string_view key, JsonValue& value) -> Status {
      if (key == "b") return Into(value.Integer(), b);
      return ReadJson(inner, [&](JsonValue& other) {
        return other.Object(
            [&](std::string_view, JsonValue& field) { return Into(field.Integer(), c); });
      });
    });
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(b, 2);
  EXPECT_EQ(c, 1);
}

TEST(Reader, TakesNumbersAndStringsAsText) {
  std::string text = R"({"a": 80 ,"b":"http","c":null,"d":{"x":[1, 2]}})";
  std::string seen;
  const Status done = ReadJson(text, [&](JsonValue& root) {
    return root.Object([&](std::string_view key, JsonValue& value) -> Status {
      std::string one;
      const Status read = key == "d" ? Into(value.Raw(), one) : Into(value.Text(), one);
      seen += one + ";";
      return read;
    });
  });
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(seen, R"(80;http;;{"x":[1, 2]};)");
}

TEST(List, ReadsPagesWhateverTheOrder) {
  std::string text = R"({"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],
    "metadata":{"resourceVersion":"7","continue":"more","remainingItemCount":5}})";
  const ObjectList list = ReadList(text, ReadObjectMeta).value();
  EXPECT_EQ(list.resource_version, "7");
  EXPECT_EQ(list.next, "more");
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_EQ(list.items[1]->meta.name, "b");
  std::string empty = R"({"metadata":{"resourceVersion":"7"},"items":null})";
  EXPECT_TRUE(ReadList(empty, ReadObjectMeta)->items.empty());
  std::string bad =
      R"({"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{}]})";
  EXPECT_EQ(ReadList(bad, ReadObjectMeta).error().message, "items[1]: an object without a name");
  std::string none = R"({"items":[]})";
  EXPECT_FALSE(ReadList(none, ReadObjectMeta));
}

Result<WatchEvent> Event(std::string line) { return ReadWatchLine(line, ReadObjectMeta); }

TEST(Watch, ReadsEveryKindOfEvent) {
  const auto added =
      Event(R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5"}}})").value();
  EXPECT_EQ(added.type, WatchEvent::Type::kAdded);
  EXPECT_EQ(added.object->meta.name, "a");
  const auto turned =
      Event(R"({"object":{"metadata":{"name":"a","resourceVersion":"5"}},"type":"DELETED"})");
  ASSERT_TRUE(turned) << turned.error().message;
  EXPECT_EQ(turned->type, WatchEvent::Type::kDeleted);
  EXPECT_EQ(turned->object->meta.name, "a");
  const auto bookmark =
      Event(
          R"({"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9",
          "annotations":{"k8s.io/initial-events-end":"true"}}}})")
          .value();
  EXPECT_EQ(bookmark.object->meta.resource_version, "9");
  EXPECT_TRUE(EndsInitialEvents(bookmark));
  EXPECT_FALSE(EndsInitialEvents(added));
  const auto error = Event(
      R"({"type":"ERROR","object":{"kind":"Status","reason":"Expired","message":"old","code":410}})");
  ASSERT_TRUE(error) << error.error().message;
  EXPECT_EQ(CodeOf(error->status), Code::kOutOfRange);
}

TEST(Watch, RefusesWhatIsNoEvent) {
  for (
      const char* line :
      {"", "{}", R"({"type":"ADDED"})", R"({"type":"ADDED","object":{"metadata":{"name":"a"}}})",
       R"({"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}})",
       R"({"type":"OTHER","object":{}})", R"({"type":"ADDED","object":null})",
       R"({"type":"BOOKMARK","object":{"metadata":{}}})",
       R"({"type":"ADDED","type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"1"}}})",
       R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVer)"}) {
    const auto event = Event(line);
    ASSERT_FALSE(event) << line;
    EXPECT_EQ(event.error().code, Code::kDataLoss) << line;
  }
}

TEST(Watch, RefusesAnEventWithTwoObjects) {
  const std::string object = R"("object":{"metadata":{"name":"a","resourceVersion":"1"}})";
  EXPECT_TRUE(Event(R"({"type":"ADDED",)" + object + "}"));
  EXPECT_FALSE(Event(R"({"type":"ADDED",)" + object + "," + object + "}"));
  EXPECT_FALSE(Event("{" + object + "," + object + R"(,"type":"ADDED"})"));
}

TEST(Refusal, SaysWhatTheServerSaid) {
  const ApiStatus status = StatusOfAnswer(
      409, R"({"kind":"Status","status":"Failure","message":"pods \"a\" already exists",
              "reason":"AlreadyExists","details":{"name":"a","retryAfterSeconds":2},"code":409})");
  EXPECT_EQ(ErrorOf(status).code, Code::kAlreadyExists);
  EXPECT_EQ(ErrorOf(status).message, "pods \"a\" already exists");
  EXPECT_EQ(status.retry_after_ns, 2'000'000'000);
  EXPECT_EQ(CodeOf(StatusOfAnswer(409, R"({"reason":"Conflict"})")), Code::kAborted);
  EXPECT_EQ(ErrorOf(StatusOfAnswer(502, "<html>\nbad gateway")).message, "<html>?bad gateway");
  EXPECT_EQ(ErrorOf(StatusOfAnswer(503, "{}")).message, "the API server answered 503");
  EXPECT_EQ(CodeOf(StatusOfAnswer(410, "")), Code::kOutOfRange);
  EXPECT_TRUE(
      StatusOfAnswer(504, R"({"message":"Timeout: Too large resource version: 9, current: 8",
    "details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}})")
          .version_too_large);
  EXPECT_TRUE(
      StatusOfAnswer(504, R"({"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}})")
          .version_too_large);
  EXPECT_FALSE(StatusOfAnswer(504, R"({"message":"Timeout"})").version_too_large);
}

TEST(Refusal, EveryNumberHasACode) {
  for (const auto& [number, code] :
       std::initializer_list<std::pair<int, Code>>{{400, Code::kInvalidArgument},
                                                   {401, Code::kUnauthenticated},
                                                   {403, Code::kPermissionDenied},
                                                   {404, Code::kNotFound},
                                                   {409, Code::kAborted},
                                                   {410, Code::kOutOfRange},
                                                   {418, Code::kInternal},
                                                   {422, Code::kInvalidArgument},
                                                   {429, Code::kResourceExhausted},
                                                   {500, Code::kUnavailable},
                                                   {504, Code::kDeadlineExceeded}}) {
    EXPECT_EQ(CodeOf(StatusOfAnswer(number, "{}")), code) << number;
  }
}

}  // namespace
}  // namespace tessera::kube
