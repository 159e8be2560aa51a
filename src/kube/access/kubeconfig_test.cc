// Kubeconfigs as kubectl reads them, and what a pod finds in itself.
#include "kube/access/kubeconfig.h"

#include <gtest/gtest.h>

#include <map>

#include "kube/access/in_cluster.h"
#include "kube/testing/temporary_folder.h"

namespace tessera::kube {
namespace {

constexpr const char* kFull = R"(
apiVersion: v1
kind: Config
current-context: blue
clusters:
- name: one
  cluster:
    server: https://10.0.0.1:6443/
    certificate-authority-data: Q0E=
    tls-server-name: api.internal
    proxy-url: http://proxy:3128
- name: two
  cluster: {server: "https://10.0.0.2:6443", certificate-authority: pki/ca.crt, insecure-skip-tls-verify: true}
users:
- name: alice
  user: {client-certificate-data: Q0VSVA==, client-key-data: S0VZ}
- name: bob
  user: {tokenFile: secrets/token, token: old}
- name: carol
  user: {username: carol, password: pw, client-certificate: /abs/c.crt, client-key: c.key}
- name: dave
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: bin/login
      args: [--cluster, one]
      env: [{name: REGION, value: kr}]
      provideClusterInfo: true
      installHint: install login
contexts:
- name: blue
  context: {cluster: one, user: alice, namespace: team}
- name: red
  context: {cluster: two, user: bob}
- name: green
  context: {cluster: one, user: carol}
- name: grey
  context: {cluster: one, user: dave}
- name: broken
  context: {cluster: none, user: alice}
)";

Result<ClientConfig> Load(const std::string& file, const std::string& context = "") {
  return LoadKubeconfig({.files = {file}, .all_must_exist = true, .context = context});
}

TEST(Kubeconfig, DataFormsOfTheCurrentContext) {
  const testing::TemporaryFolder folder;
  const ClientConfig config = Load(folder.Write("config", kFull)).value();
  EXPECT_EQ(config.server, "https://10.0.0.1:6443");
  EXPECT_EQ(config.ca_pem, "CA");
  EXPECT_EQ(config.tls_server_name, "api.internal");
  EXPECT_EQ(config.proxy_url, "http://proxy:3128");
  EXPECT_EQ(config.default_namespace, "team");
  EXPECT_EQ(config.credential.client_certificate_pem, "CERT");
  EXPECT_EQ(config.credential.client_key_pem, "KEY");
  EXPECT_FALSE(config.insecure_skip_tls_verify);
  EXPECT_TRUE(config.warnings.empty());
}

TEST(Kubeconfig, FilesAreRelativeToTheFileThatNamesThem) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.Write("config", kFull);
  const ClientConfig red = Load(file, "red").value();
  EXPECT_EQ(red.ca_file, folder.path() + "/pki/ca.crt");
  EXPECT_EQ(red.credential.token_file, folder.path() + "/secrets/token");
  EXPECT_EQ(red.default_namespace, "default");
  const ClientConfig green = Load(file, "green").value();
  EXPECT_EQ(green.credential.client_certificate_file, "/abs/c.crt");
  EXPECT_EQ(green.credential.client_key_file, folder.path() + "/c.key");
  EXPECT_EQ(green.credential.username, "carol");
  const ExecConfig exec = Load(file, "grey").value().credential.exec.value();
  EXPECT_EQ(exec.command, folder.path() + "/bin/login");
  EXPECT_EQ(exec.arguments, (std::vector<std::string>{"--cluster", "one"}));
  EXPECT_EQ(exec.environment[0], (std::pair<std::string, std::string>{"REGION", "kr"}));
  EXPECT_TRUE(exec.provide_cluster_info);
}

TEST(Kubeconfig, AnUnverifiedServerIsALoudWarning) {
  const testing::TemporaryFolder folder;
  const ClientConfig red = Load(folder.Write("config", kFull), "red").value();
  ASSERT_EQ(red.warnings.size(), 1u);
  EXPECT_NE(red.warnings[0].find("NOT verified"), std::string::npos);
}

TEST(Kubeconfig, TheFirstFileOfTheListWins) {
  const testing::TemporaryFolder folder;
  const std::string first = folder.Write("first", R"(
clusters: [{name: c, cluster: {server: "https://first"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
)");
  const std::string second = folder.Write("second", R"(
current-context: x
clusters: [{name: c, cluster: {server: "https://second"}}]
users: [{name: u, user: {token: t}}]
)");
  const KubeconfigSource source =
      DefaultSource((first + "::" + folder.path() + "/missing:" + second).c_str(), "/nowhere");
  const ClientConfig config = LoadKubeconfig(source).value();
  EXPECT_EQ(config.server, "https://first");
  EXPECT_EQ(config.credential.token, "t");
  EXPECT_EQ(DefaultSource(nullptr, "/home/a").files,
            std::vector<std::string>{"/home/a/.kube/config"});
}

TEST(Kubeconfig, WhatIsMissingOrBrokenIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.Write("config", kFull);
  EXPECT_EQ(Load(folder.path() + "/none").error().code, Code::kNotFound);
  EXPECT_NE(Load(file, "purple").error().message.find("no context 'purple'"), std::string::npos);
  EXPECT_NE(Load(file, "broken").error().message.find("no cluster 'none'"), std::string::npos);

  struct Case {
    const char* text;
    Code code;
    const char* word;
  };
  for (const Case& c : {
           Case{"[1, 2]", Code::kInvalidArgument, "not a kubeconfig"},
           Case{"clusters: 3", Code::kInvalidArgument, "'clusters'"},
           Case{"clusters: [{cluster: {}}]", Code::kInvalidArgument, "no name"},
           Case{"a: 1\na: 2", Code::kInvalidArgument, "twice"},
           Case{"kind: Config", Code::kNotFound, "current-context"},
           Case{"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
                "clusters: [{name: c, cluster: {server: '10.0.0.1'}}]",
                Code::kInvalidArgument, "https://"},
           Case{"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority-data: "
                "'!'}}]",
                Code::kInvalidArgument, "certificate-authority-data"},
           Case{"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://a'}}]\n"
                "users: [{name: u, user: {as: root}}]",
                Code::kUnimplemented, "'as'"},
           Case{"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://a'}}]\n"
                "users: [{name: u, user: {client-certificate-data: QQ==}}]",
                Code::kInvalidArgument, "belong together"},
           Case{"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://a'}}]\n"
                "users: [{name: u, user: {exec: {command: a, apiVersion: v0}}}]",
                Code::kInvalidArgument, "apiVersion 'v0'"},
       }) {
    const Result<ClientConfig> config = Load(folder.Write("bad", c.text));
    ASSERT_FALSE(config) << c.text;
    EXPECT_EQ(config.error().code, c.code) << c.text;
    EXPECT_NE(config.error().message.find(c.word), std::string::npos) << config.error().message;
  }
}

TEST(InCluster, ReadsTheServiceAccount) {
  const testing::TemporaryFolder folder;
  std::map<std::string, std::string> variables;
  const auto variable = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_EQ(InClusterConfig(variable, folder.path()).error().code, Code::kFailedPrecondition);
  variables = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"KUBERNETES_SERVICE_PORT", "443"}};
  EXPECT_EQ(InClusterConfig(variable, folder.path()).error().code, Code::kFailedPrecondition);
  folder.Write("token", "t");
  folder.Write("namespace", "tessera-system\n");
  ClientConfig config = InClusterConfig(variable, folder.path()).value();
  EXPECT_EQ(config.server, "https://10.96.0.1:443");
  EXPECT_EQ(config.ca_file, folder.path() + "/ca.crt");
  EXPECT_EQ(config.credential.token_file, folder.path() + "/token");
  EXPECT_EQ(config.default_namespace, "tessera-system");
  variables["KUBERNETES_SERVICE_HOST"] = "fd00::1";
  EXPECT_EQ(InClusterConfig(variable, folder.path())->server, "https://[fd00::1]:443");
}

}  // namespace
}  // namespace tessera::kube
