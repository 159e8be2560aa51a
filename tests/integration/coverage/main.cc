// Proves for every entry point that takes or gives back card memory, by every route to it, that the
// fence refuses what exceeds the slice and charges exactly what the driver takes (see row.h).
//
//   coverage --list                 the entry points, one a line
//   coverage ENTRY                  all routes of one entry point, each in a process of its own;
//                                   exit 1 if a row fails
//   coverage --row ENTRY ROUTE      one row in this process
//   coverage --check CSV            every hooked name of the fence's list has a row or a stated
//                                   reason
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/integration/coverage/row.h"
#include "tests/integration/support/figures.h"

namespace tessera::testing {
namespace {

constexpr int kRowFailed = 1;
constexpr int kNoSuchForm = 77;  // this route leads to another form of the function

int Fail(const char* what, CUresult got, const Figures& before, const Figures& now) {
  std::printf("%s: code %d, ledger %+lld bytes (total %+lld), driver %+lld bytes\n", what, got,
              static_cast<long long>(now.ledger_own - before.ledger_own),
              static_cast<long long>(now.ledger_total - before.ledger_total),
              static_cast<long long>(now.driver_own - before.driver_own));
  return kRowFailed;
}

bool Same(const Figures& a, const Figures& b) {
  return a.ledger_own == b.ledger_own && a.ledger_total == b.ledger_total &&
         a.driver_own == b.driver_own;
}

int CheckSteps(const Steps& steps) {
  const Figures start = ReadFigures();
  if (start.ledger_own != start.driver_own) {
    return Fail("before anything the ledger differs from the driver", CUDA_SUCCESS,
                {.ledger_total = start.ledger_total,
                 .ledger_own = start.driver_own,
                 .driver_own = start.driver_own},
                start);
  }
  if (!steps.charges_nothing) {
    CUresult result = steps.exceed();
    Figures now = ReadFigures();
    if (result != steps.refused_with) return Fail("not refused", result, start, now);
    if (!Same(start, now)) return Fail("refused, but figures moved", result, start, now);
  }
  CUresult result = steps.take();
  Figures taken = ReadFigures();
  if (result != CUDA_SUCCESS) return Fail("not granted", result, start, taken);
  std::uint64_t by_driver = taken.driver_own - start.driver_own;
  if ((by_driver == 0 && !steps.charges_nothing) ||
      taken.ledger_own - start.ledger_own != by_driver ||
      taken.ledger_total - start.ledger_total != by_driver) {
    return Fail("charged otherwise than the driver took", result, start, taken);
  }
  result = steps.release();
  Figures end = ReadFigures();
  if (result != CUDA_SUCCESS) return Fail("not released", result, taken, end);
  if (!Same(start, end)) return Fail("not back where it was", result, start, end);
  return 0;
}

int RunRow(const Entry& entry, Route route) {
  CUresult result = DRIVER(cuInit)(0);
  Bench bench;
  if (result == CUDA_SUCCESS) result = DRIVER(cuCtxCreate_v2)(&bench.context, 0, 0);
  if (result == CUDA_SUCCESS) {
    result = DRIVER(cuStreamCreate)(&bench.stream, CU_STREAM_NON_BLOCKING);
  }
  if (result != CUDA_SUCCESS) {
    std::printf("no context: code %d\n", result);
    return kRowFailed;
  }
  // Whatever the driver takes once per process for its own use is taken before the first figure is
  // read.
  CUdeviceptr warm = 0;
  DRIVER(cuMemAlloc_v2)(&warm, 1);
  DRIVER(cuMemFree_v2)(warm);
  bench.limit = ReadFigures().limit;
  // What fits only without the dead makes the fence sweep: what earlier rows left by ending is out
  // of the figures.
  const Figures settled = ReadFigures();
  DRIVER(cuMemAlloc_v2)(&warm, (settled.limit - settled.ledger_live) / (2 * kMiB) * (2 * kMiB));
  DRIVER(cuMemFree_v2)(warm);

  void* function = FindFunction(entry.symbol, route);
  if (function == nullptr) return kNoSuchForm;
  return CheckSteps(entry.scenario(bench, function));
}

const Entry* FindEntry(const char* symbol) {
  for (const Entry& entry : Entries()) {
    if (entry.symbol == symbol) return &entry;
  }
  std::fprintf(stderr, "coverage: no entry point '%s'; --list shows them\n", symbol);
  return nullptr;
}

int RunInOwnProcess(const Entry& entry, Route route) {
  std::fflush(stdout);
  pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "coverage", "--row", entry.symbol.c_str(), RouteName(route), nullptr);
    ::_exit(98);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int RunAllRoutes(const Entry& entry) {
  const bool per_thread = entry.symbol.ends_with("_ptsz") || entry.symbol.ends_with("_ptds");
  int failed = 0;
  int held = 0;
  for (Route route : kRoutes) {
    int code = RunInOwnProcess(entry, route);
    const char* verdict = code == 0 ? "ok" : code == kNoSuchForm ? "other form" : "FAILED";
    std::printf("%-36s %-24s %-10s %s\n", entry.symbol.c_str(), RouteName(route),
                per_thread ? "per-thread" : "legacy", verdict);
    held += code == 0 ? 1 : 0;
    failed += code == 0 || code == kNoSuchForm ? 0 : 1;
  }
  if (held < 3) {
    std::printf("%s: only %d routes lead to it\n", entry.symbol.c_str(), held);
    return 1;
  }
  return failed == 0 ? 0 : 1;
}

// The list is generated from the toolkit's header and hooks.def: a new entry point cannot be
// overlooked.
int CheckList(const char* path) {
  std::ifstream list(path);
  std::string line;
  int hooked = 0, missing = 0;
  while (std::getline(list, line)) {
    std::istringstream fields(line);
    std::string name, library, decision, family;
    std::getline(fields, name, ',');
    std::getline(fields, library, ',');
    std::getline(fields, decision, ',');
    std::getline(fields, family, ',');
    if (library != "cuda" || decision != "hook") continue;
    // These families take no card memory; what they do is tested where they stand.
    if (family == "entry" || family == "query" || family == "sync" ||
        (family == "launch" && !name.starts_with("cuGraphLaunch")))
      continue;
    ++hooked;
    bool known = false;
    for (const Entry& entry : Entries()) known = known || entry.symbol == name;
    for (const Excuse& excuse : Excuses()) known = known || excuse.symbol == name;
    if (!known) {
      std::printf("%s (%s): hooked, but coverage has no row and no reason for it\n", name.c_str(),
                  family.c_str());
      ++missing;
    }
  }
  std::printf("%d hooked entry points that take or give back memory, %d without a row\n", hooked,
              missing);
  return hooked > 40 && missing == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--check") == 0) return CheckList(argv[2]);
  if (argc == 3 && std::strcmp(argv[1], "--own") == 0) {
    return OwnForOthers(std::strtoull(argv[2], nullptr, 10));
  }
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const Entry& entry : Entries()) std::printf("%s\n", entry.symbol.c_str());
    return 0;
  }
  if (argc == 4 && std::strcmp(argv[1], "--row") == 0) {
    const Entry* entry = FindEntry(argv[2]);
    for (Route route : kRoutes) {
      if (entry != nullptr && std::strcmp(RouteName(route), argv[3]) == 0) {
        return RunRow(*entry, route);
      }
    }
    return 2;
  }
  if (argc == 2) {
    const Entry* entry = FindEntry(argv[1]);
    return entry == nullptr ? 2 : RunAllRoutes(*entry);
  }
  std::fprintf(stderr, "usage: coverage --list | ENTRY | --row ENTRY ROUTE\n");
  return 2;
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) { return tessera::testing::Main(argc, argv); }
