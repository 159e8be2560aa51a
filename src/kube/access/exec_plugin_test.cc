// Credential plugins: what they are told, what is taken from them, and that a bad one hurts nobody.
#include "kube/access/exec_plugin.h"

#include <gtest/gtest.h>

#include <thread>

#include "kube/access/run_command.h"
#include "kube/testing/temporary_folder.h"

namespace tessera::kube {
namespace {

constexpr std::int64_t kTenSeconds = 10'000'000'000;
constexpr const char* kV1 = "client.authentication.k8s.io/v1";

ClientConfig Plugin(const testing::TemporaryFolder& folder, const std::string& script) {
  ClientConfig config;
  config.server = "https://10.0.0.1:6443";
  config.ca_pem = "CA";
  config.credential.exec =
      ExecConfig{.api_version = kV1,
                 .command = folder.Write("plugin", "#!/bin/sh\n" + script, 0700),
                 .arguments = {"a b"},
                 .environment = {{"REGION", "kr"}},
                 .provide_cluster_info = true,
                 .install_hint = "install it"};
  return config;
}

std::string Answer(const std::string& status) {
  return std::string(R"({"apiVersion":")") + kV1 + R"(","kind":"ExecCredential","status":)" +
         status + "}";
}

TEST(ExecPlugin, IsToldTheClusterAndGivesAToken) {
  const testing::TemporaryFolder folder;
  const ClientConfig config = Plugin(folder, R"(
[ "$1" = "a b" ] && [ "$REGION" = kr ] || exit 3
case "$KUBERNETES_EXEC_INFO" in *'"certificate-authority-data":"Q0E="'*) ;; *) exit 4 ;; esac
case "$KUBERNETES_EXEC_INFO" in *'"server":"https://10.0.0.1:6443"'*) ;; *) exit 5 ;; esac
if read -r line; then exit 6; fi
echo ')" + Answer(R"({"token":"abc","expirationTimestamp":"2026-11-30T14:22:10Z"})") +
                                                 "'\n");
  const Result<ExecAnswer> answer = RunExecPlugin(config, kTenSeconds, {});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->identity.authorization, "Bearer abc");
  EXPECT_EQ(answer->expires_seconds, 1796048530);
}

TEST(ExecPlugin, InheritsNoDescriptorOfOurs) {
  const testing::TemporaryFolder folder;
  const ClientConfig config =
      Plugin(folder, "ls /proc/self/fd | wc -l >" + folder.path() + "/count\necho '" +
                         Answer(R"({"token":"abc"})") + "'\n");
  ASSERT_TRUE(RunExecPlugin(config, kTenSeconds, {}));
  const std::string count = base::ReadFile(folder.path() + "/count", 100).value();
  EXPECT_LE(std::stoi(count), 4);  // three streams and the folder that ls reads
}

TEST(ExecPlugin, FailuresSayWhatThePluginSaid) {
  const testing::TemporaryFolder folder;
  Result<ExecAnswer> answer = RunExecPlugin(
      Plugin(folder, "echo first >&2; echo log in again >&2; exit 7\n"), kTenSeconds, {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_NE(answer.error().message.find("ended with 7: log in again (install it)"),
            std::string::npos)
      << answer.error().message;

  ClientConfig config = Plugin(folder, "");
  config.credential.exec->command = folder.path() + "/none";
  answer = RunExecPlugin(config, kTenSeconds, {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
  EXPECT_NE(answer.error().message.find("install it"), std::string::npos);
}

TEST(ExecPlugin, OneThatHangsIsKilledWithItsChildren) {
  const testing::TemporaryFolder folder;
  const ClientConfig config =
      Plugin(folder, "sleep 1000 & echo $! >" + folder.path() + "/pid\nwait\n");
  const Result<ExecAnswer> answer = RunExecPlugin(config, 500'000'000, {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kDeadlineExceeded);
  const pid_t child = std::stoi(base::ReadFile(folder.path() + "/pid", 100).value_or("0"));
  ASSERT_GT(child, 0);
  bool gone = false;
  for (int i = 0; i < 500 && !gone; ++i) {
    const Result<std::string> stat =
        base::ReadKernelFile("/proc/" + std::to_string(child) + "/stat", 4096);
    gone = !stat || stat->find(") Z ") != std::string::npos;
    if (!gone) base::RealClock().SleepNs(10'000'000);
  }
  EXPECT_TRUE(gone);
}

TEST(ExecPlugin, IsGivenUpWhenAsked) {
  const testing::TemporaryFolder folder;
  std::stop_source stop;
  std::jthread later([&] {
    base::RealClock().SleepNs(50'000'000);
    stop.request_stop();
  });
  const Result<ExecAnswer> answer =
      RunExecPlugin(Plugin(folder, "sleep 1000\n"), 60'000'000'000, stop.get_token());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kCancelled);
}

TEST(ExecPlugin, OneThatFloodsIsStopped) {
  const testing::TemporaryFolder folder;
  const Result<ExecAnswer> answer = RunExecPlugin(Plugin(folder, "yes\n"), 60'000'000'000, {});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kResourceExhausted);
}

TEST(ExecPlugin, AnswersThatAreNone) {
  for (
      const std::string& text :
      {std::string("not json"), Answer("{}"), Answer(R"({"token":"a\r\nX-Evil: 1"})"),
       Answer(R"({"clientCertificateData":"x"})"),
       Answer(R"({"token":"a","expirationTimestamp":"soon"})"),
       std::string(
           R"({"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{"token":"a"}})")}) {
    EXPECT_EQ(ParseExecCredential(text, kV1).error().code,
              text.find("soon") == text.npos ? Code::kDataLoss : Code::kInvalidArgument)
        << text;
  }
  const auto answer =
      ParseExecCredential(Answer(R"({"clientCertificateData":"C","clientKeyData":"K"})"), kV1);
  EXPECT_EQ(answer->identity.certificate_pem, "C");
  EXPECT_FALSE(answer->expires_seconds);
}

TEST(RunCommand, ADaemonThatKeepsTheStreamsOpenIsNotWaitedFor) {
  const Result<CommandOutput> output = RunCommand(
      {.words = {"sh", "-c", "sleep 3 & echo out; exit 5"}, .timeout_ns = kTenSeconds}, {});
  ASSERT_TRUE(output);
  EXPECT_EQ(output->exit_code, 5);
  EXPECT_EQ(output->out, "out\n");
}

}  // namespace
}  // namespace tessera::kube
