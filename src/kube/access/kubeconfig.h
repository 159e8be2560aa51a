// Reads kubeconfig files as kubectl does.
//
// Thread safety: pure but for reading files. Sources: client-go tools/clientcmd (loading rules:
// KUBECONFIG is a list, the first file that has a name wins, missing files of the list are skipped;
// relative paths are relative to the file that has them).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/access/client_config.h"

namespace tessera::kube {

struct KubeconfigSource {
  std::vector<std::string> files;
  bool all_must_exist = false;  // true for a file that was named by a flag
  std::string context;          // empty: current-context
};

// What an empty flag means: KUBECONFIG as a ':' list, else HOME/.kube/config. nullptr: unset.
KubeconfigSource DefaultSource(const char* kubeconfig_variable, const char* home);

// kNotFound: no file, or no such context, cluster or user. kInvalidArgument: broken text, naming
// file and field. kUnimplemented: auth-provider and impersonation, so that nobody acts as somebody
// else by mistake.
Result<ClientConfig> LoadKubeconfig(const KubeconfigSource& source);

}  // namespace tessera::kube
