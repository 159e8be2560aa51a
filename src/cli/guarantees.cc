#include "cli/guarantees.h"

namespace tessera::cli {

std::vector<Guarantee> Guarantees(node::Fencing fencing, const driver::SecondWallProbe& wall) {
  std::vector<Guarantee> all;
  all.push_back(
      {"memory", true,
       "enforced by the fence in every process that loads the driver: what exceeds the slice gets "
       "CUDA_ERROR_OUT_OF_MEMORY, and the neighbours' figures do not move"});
  all.push_back({"visibility", true,
                 "the driver's calls and NVML show the slice as if it were the card; other cards "
                 "do not exist for it"});
  if (fencing == node::Fencing::kNamespace) {
    all.push_back({"staying inside", true,
                   "mount namespace of its own: env -i, new logins, su and children stay fenced"});
  } else {
    all.push_back({"staying inside", false,
                   "fenced by environment variables only: a process that drops LD_PRELOAD is not "
                   "fenced (run refuses "
                   "with --require-fence)"});
  }
  all.push_back(
      {"second wall", wall.available,
       wall.available
           ? "the driver itself limits the slice's cgroup: it also stops what goes round the fence"
           : "none: " + wall.reason});
  all.push_back({"compute share", false, "recorded and shown, not enforced yet"});
  all.push_back({"priority", false, "recorded and shown, not enforced yet"});
  return all;
}

std::vector<std::string> NotPrevented(node::Fencing fencing) {
  std::vector<std::string> all = {
      "programs that are linked statically, and those of another C library (musl), never load the "
      "fence",
      "a process may talk to the driver by raw ioctls, or load it with RTLD_DEEPBIND",
      "a process may write false figures into its own ledger (it cannot raise its limit by that "
      "elsewhere)",
  };
  if (fencing == node::Fencing::kNamespace) {
    all.push_back("root inside a slice that root started may take the preload away again");
  } else {
    all.push_back("any process may start another one without LD_PRELOAD");
  }
  return all;
}

}  // namespace tessera::cli
