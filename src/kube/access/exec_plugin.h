// Credential plugins: a program that prints an ExecCredential (client.authentication.k8s.io/v1).
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kube/access/client_config.h"
#include "kube/access/credentials.h"

namespace tessera::kube {

inline constexpr std::int64_t kExecTimeoutNs = 60'000'000'000;

struct ExecAnswer {
  Identity identity;
  std::optional<std::int64_t> expires_seconds;  // since 1970; unset: for the life of this process
};

// What the plugin is told in KUBERNETES_EXEC_INFO.
std::string ExecInfo(const ClientConfig& config);

// kDataLoss: not an ExecCredential of that version, or one without token and certificate.
Result<ExecAnswer> ParseExecCredential(std::string_view text, const std::string& api_version);

// Runs config.credential.exec, which must be set. kUnavailable when it cannot be started or fails
// (the message quotes its last words and the install hint); kDeadlineExceeded when it was killed.
Result<ExecAnswer> RunExecPlugin(const ClientConfig& config, std::int64_t timeout_ns,
                                 std::stop_token stop);

}  // namespace tessera::kube
