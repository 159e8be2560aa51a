// The verbs of the API, and what its refusals become.
#include "kube/objects/api.h"

#include <gtest/gtest.h>

#include "kube/objects/patch.h"
#include "kube/testing/api_model.h"
#include "kube/testing/scripted_transport.h"

namespace tessera::kube {
namespace {

constexpr const char* kLeases = "/apis/coordination.k8s.io/v1/namespaces/a/leases";
constexpr const char* kLease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/l";

class ApiTest : public ::testing::Test {
 protected:
  testing::ApiModel model_;
  testing::ModelTransport transport_{model_};
  Api api_{transport_, "tessera"};
};

TEST_F(ApiTest, CreatesReadsChangesAndDeletes) {
  EXPECT_EQ(api_.Get(kLease, {}).error().code, Code::kNotFound);
  const std::string body = R"({"metadata":{"name":"l"},"spec":{"n":1}})";
  ASSERT_TRUE(api_.Create(kLeases, body, {}));
  EXPECT_EQ(api_.Create(kLeases, body, {}).error().code, Code::kAlreadyExists);
  const std::string read = api_.Get(kLease, {}).value();
  EXPECT_NE(read.find(R"("n":1)"), std::string::npos);
  ASSERT_TRUE(api_.Patch(kLease, kMergePatchType, R"({"spec":{"n":2}})", {}));
  EXPECT_EQ(api_.Replace(kLease, read, {}).error().code, Code::kAborted);  // has the old version
  ASSERT_TRUE(api_.Apply(kLease, R"({"metadata":{"name":"l"},"spec":{"m":3}})", true, {}));
  EXPECT_NE(api_.Get(kLease, {})->find(R"({"n":2,"m":3})"), std::string::npos);
  EXPECT_EQ(api_.Delete(kLease, {.uid = "other"}, {}).error().code, Code::kAborted);
  EXPECT_TRUE(api_.Delete(kLease, {.uid = "uid-1"}, {}));
  EXPECT_EQ(api_.Delete(kLease, {}, {}).error().code, Code::kNotFound);
}

TEST_F(ApiTest, ErrorsNameTheCall) {
  EXPECT_EQ(api_.Get(std::string(kLease) + "?x=y", {}).error().message,
            "GET " + std::string(kLease) + ": l not found");
}

TEST(ApiRequests, SayWhoWeAre) {
  testing::FakeTimer timer;
  testing::ScriptedTransport wire(timer);
  Api api(wire, "tessera x");
  for (int i = 0; i < 3; ++i) wire.Add(testing::Status(200, "{}"));
  ASSERT_TRUE(api.Apply("/p", "{}", true, {}));
  ASSERT_TRUE(api.Patch("/p", kJsonPatchType, "[]", {}));
  ASSERT_TRUE(api.Delete("/p", {.uid = "u", .resource_version = "7"}, {}));
  EXPECT_EQ(wire.requests[0].path, "/p?fieldManager=tessera%20x&force=true");
  EXPECT_EQ(wire.requests[0].content_type, kApplyPatchType);
  EXPECT_EQ(wire.requests[1].content_type, kJsonPatchType);
  EXPECT_EQ(wire.requests[2].body, R"({"apiVersion":"v1","kind":"DeleteOptions",)"
                                   R"("preconditions":{"uid":"u","resourceVersion":"7"}})");
  wire.Add(testing::Status(503, "gone fishing"));
  EXPECT_EQ(api.Get("/p", {}).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace tessera::kube
