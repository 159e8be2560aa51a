// Identities that change under a running client: files that are renewed, plugins that expire.
#include "kube/access/credentials.h"

#include <gtest/gtest.h>

#include "kube/testing/temporary_folder.h"

namespace tessera::kube {
namespace {

std::string Header(Credentials& credentials) {
  const Result<Identity> identity = credentials.Get({});
  return identity ? identity->authorization : "failed: " + identity.error().message;
}

TEST(Credentials, StaticForms) {
  base::FakeClock clock;
  ClientConfig config;
  EXPECT_EQ(Header(*MakeCredentials(config, clock)), "");
  config.credential.username = "user";
  config.credential.password = "pass";
  EXPECT_EQ(Header(*MakeCredentials(config, clock)), "Basic dXNlcjpwYXNz");
  config.credential.token = "abc";
  EXPECT_EQ(Header(*MakeCredentials(config, clock)), "Bearer abc");
}

TEST(Credentials, ATokenFileIsReadAgainAfterAMinute) {
  const testing::TemporaryFolder folder;
  base::FakeClock clock;
  ClientConfig config;
  config.credential.token_file = folder.Write("token", "one\n");
  const auto credentials = MakeCredentials(config, clock);
  EXPECT_EQ(Header(*credentials), "Bearer one");
  folder.Write("token", "two\n");
  clock.SleepNs(kReadAgainNs - 1);
  EXPECT_EQ(Header(*credentials), "Bearer one");
  clock.SleepNs(1);
  EXPECT_EQ(Header(*credentials), "Bearer two");
}

TEST(Credentials, ARefusedTokenIsReadAgainAtOnce) {
  const testing::TemporaryFolder folder;
  base::FakeClock clock;
  ClientConfig config;
  config.credential.token_file = folder.Write("token", "one");
  const auto credentials = MakeCredentials(config, clock);
  const Identity used = credentials->Get({}).value();
  folder.Write("token", "two");
  credentials->Refused(used);
  EXPECT_EQ(Header(*credentials), "Bearer two");
  folder.Write("token", "three");
  credentials->Refused(used);  // an answer to the first token says nothing about the second
  EXPECT_EQ(Header(*credentials), "Bearer two");
}

TEST(Credentials, ATokenThatCannotBeReadLeavesTheLastOneInUse) {
  const testing::TemporaryFolder folder;
  base::FakeClock clock;
  ClientConfig config;
  config.credential.token_file = folder.Write("token", "one");
  const auto credentials = MakeCredentials(config, clock);
  EXPECT_EQ(Header(*credentials), "Bearer one");
  folder.Write("token", "");
  clock.SleepNs(kReadAgainNs);
  EXPECT_EQ(Header(*credentials), "Bearer one");
  folder.Write("token", "two");
  clock.SleepNs(kLeewayNs);
  EXPECT_EQ(Header(*credentials), "Bearer two");
}

TEST(Credentials, ATokenThatNeverWasIsAnError) {
  base::FakeClock clock;
  ClientConfig config;
  config.credential.token_file = "/nowhere/token";
  EXPECT_EQ(MakeCredentials(config, clock)->Get({}).error().code, Code::kNotFound);
}

TEST(Credentials, CertificateFilesAreReadAgain) {
  const testing::TemporaryFolder folder;
  base::FakeClock clock;
  ClientConfig config;
  config.credential.client_certificate_file = folder.Write("crt", "C1");
  config.credential.client_key_file = folder.Write("key", "K1");
  const auto credentials = MakeCredentials(config, clock);
  EXPECT_EQ(credentials->Get({})->certificate_pem, "C1");
  folder.Write("crt", "C2");
  folder.Write("key", "K2");
  clock.SleepNs(kReadAgainNs);
  EXPECT_EQ(credentials->Get({})->certificate_pem, "C2");
  EXPECT_EQ(credentials->Get({})->key_pem, "K2");
}

// A plugin that counts its runs and answers with the count as its token.
std::string CountingPlugin(const testing::TemporaryFolder& folder, const std::string& expires) {
  return folder.Write("login",
                      "#!/bin/sh\ncd " + folder.path() +
                          "\necho x >>runs\nn=$(wc -l <runs)\n"
                          "echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\","
                          "\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t'$n'\"" +
                          expires + "}}'\n",
                      0700);
}

TEST(Credentials, APluginRunsAgainWhenItsAnswerExpires) {
  const testing::TemporaryFolder folder;
  base::FakeClock clock;  // starts at 1 s
  ClientConfig config;
  config.credential.exec = ExecConfig{
      .api_version = "client.authentication.k8s.io/v1",
      .command = CountingPlugin(folder, ",\"expirationTimestamp\":\"1970-01-01T00:01:00Z\"")};
  const auto credentials = MakeCredentials(config, clock);
  EXPECT_EQ(Header(*credentials), "Bearer t1");
  clock.SleepNs(58'000'000'000);
  EXPECT_EQ(Header(*credentials), "Bearer t1");
  clock.SleepNs(1'000'000'000);
  EXPECT_EQ(Header(*credentials), "Bearer t2");
}

TEST(Credentials, APluginRunsOnceForManyRefusalsOfTheSameToken) {
  const testing::TemporaryFolder folder;
  base::FakeClock clock;
  ClientConfig config;
  config.credential.exec = ExecConfig{.api_version = "client.authentication.k8s.io/v1",
                                      .command = CountingPlugin(folder, "")};
  const auto credentials = MakeCredentials(config, clock);
  const Identity first = credentials->Get({}).value();
  credentials->Refused(first);
  EXPECT_EQ(Header(*credentials), "Bearer t2");
  credentials->Refused(first);
  EXPECT_EQ(Header(*credentials), "Bearer t2");
}

}  // namespace
}  // namespace tessera::kube
