// Eight processes race for the last bytes of one slice; the sum of what is granted is never above
// the limit.
//
//   race PROCESSES ROUNDS     exit 1 when the limit was exceeded or nobody was refused or granted
//
// Every process adds what it was granted to a shared sum before it looks at it, and subtracts
// before it gives back, so the sum never exceeds what is really held: a sum above the limit is a
// grant too many.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/integration/support/driver.h"
#include "tests/integration/support/figures.h"

namespace tessera::testing {
namespace {

constexpr std::uint64_t kBlock = std::uint64_t{2} << 20;
constexpr int kSharedDescriptor = 201;

struct Shared {
  std::atomic<int> ready, go, done, processes;
  std::atomic<std::uint64_t> granted_bytes, highest_bytes;
  std::atomic<std::uint64_t> grants, refusals, over, other_codes;
};

Shared* MapShared() {
  void* at =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, kSharedDescriptor, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Shared*>(at);
}

int Racer(int index, int rounds) {
  Shared& shared = *MapShared();
  CUcontext context = nullptr;
  if (DRIVER(cuInit)(0) != CUDA_SUCCESS || DRIVER(cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS) {
    return 3;
  }
  shared.ready.fetch_add(1);
  while (shared.go.load() == 0) ::usleep(500);
  const std::uint64_t room = ReadFigures().limit;
  const std::uint64_t base = static_cast<std::uint64_t>(shared.go.load()) * kBlock;  // held before
  for (int round = 0; round < rounds; ++round) {
    // Sizes that do not divide the room, so that the last bytes are always contested.
    std::uint64_t bytes = kBlock * (1 + static_cast<std::uint64_t>(round + index) % 7);
    CUdeviceptr pointer = 0;
    CUresult result = DRIVER(cuMemAlloc_v2)(&pointer, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      shared.refusals.fetch_add(1);
      continue;
    }
    if (result != CUDA_SUCCESS) {
      shared.other_codes.fetch_add(1);
      continue;
    }
    std::uint64_t sum = shared.granted_bytes.fetch_add(bytes) + bytes;
    shared.grants.fetch_add(1);
    std::uint64_t highest = shared.highest_bytes.load();
    while (sum > highest && !shared.highest_bytes.compare_exchange_weak(highest, sum)) {
    }
    if (base + sum > room) shared.over.fetch_add(1);
    shared.granted_bytes.fetch_sub(bytes);
    if (DRIVER(cuMemFree_v2)(pointer) != CUDA_SUCCESS) shared.other_codes.fetch_add(1);
  }
  // A racer that ends gives its context back, which would be room that the others' sums know
  // nothing of.
  shared.done.fetch_add(1);
  while (shared.done.load() < shared.processes.load()) ::usleep(500);
  return 0;
}

int Main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--racer") {
    return Racer(std::atoi(argv[2]), std::atoi(argv[3]));
  }
  int processes = argc > 2 ? std::atoi(argv[1]) : 0;
  int rounds = argc > 2 ? std::atoi(argv[2]) : 0;
  if (processes < 2 || processes > 64 || rounds < 1) {
    std::fprintf(stderr, "usage: race PROCESSES ROUNDS   2..64, >= 1\n");
    return 2;
  }
  int fd = ::memfd_create("race", 0);
  if (fd < 0 || ::ftruncate(fd, sizeof(Shared)) != 0 || ::dup2(fd, kSharedDescriptor) < 0) return 2;
  Shared& shared = *MapShared();
  shared.processes = processes;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    pid_t child = ::fork();
    if (child == 0) {
      std::string index = std::to_string(i), text = std::to_string(rounds);
      ::execl("/proc/self/exe", "race", "--racer", index.c_str(), text.c_str(), nullptr);
      ::_exit(98);
    }
    children.push_back(child);
  }
  for (int waited = 0; shared.ready.load() < processes; ++waited) {
    if (waited > 60'000) {
      std::fprintf(stderr, "race: only %d of %d processes came up\n", shared.ready.load(),
                   processes);
      for (pid_t child : children) ::kill(child, SIGKILL);
      return 1;
    }
    ::usleep(1000);
  }
  // Leave room for nine blocks: less than the racers want together, more than any one asks for.
  CUcontext context = nullptr;
  CUdeviceptr filler = 0;
  if (DRIVER(cuInit)(0) != CUDA_SUCCESS || DRIVER(cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS) {
    std::fprintf(stderr, "race: no context\n");
    for (pid_t child : children) ::kill(child, SIGKILL);
    return 1;
  }
  Figures before = ReadFigures();
  std::uint64_t fill = (before.limit - before.ledger_total) / kBlock * kBlock - 9 * kBlock;
  if (DRIVER(cuMemAlloc_v2)(&filler, fill) != CUDA_SUCCESS) {
    std::fprintf(stderr, "race: cannot fill the slice\n");
    for (pid_t child : children) ::kill(child, SIGKILL);
    return 1;
  }
  Figures filled = ReadFigures();
  shared.go = static_cast<int>(filled.ledger_total / kBlock);

  std::uint64_t sampled_over = 0, samples = 0;
  int failed = 0;
  for (pid_t child : children) {
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      Figures now = ReadFigures();
      ++samples;
      if (samples > 150'000)
        shared.processes = 0;  // five minutes: somebody died, let the others go
      if (now.ledger_total > now.limit || now.driver_total > now.limit) ++sampled_over;
      ::usleep(2000);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ++failed;
  }
  std::printf(
      "%d processes x %d rounds: %llu granted, %llu refused, %llu over the limit, "
      "%llu of %llu samples over, %llu other codes, %d processes failed\n",
      processes, rounds, static_cast<unsigned long long>(shared.grants.load()),
      static_cast<unsigned long long>(shared.refusals.load()),
      static_cast<unsigned long long>(shared.over.load()),
      static_cast<unsigned long long>(sampled_over), static_cast<unsigned long long>(samples),
      static_cast<unsigned long long>(shared.other_codes.load()), failed);
  bool good = shared.over == 0 && sampled_over == 0 && shared.other_codes == 0 && failed == 0 &&
              shared.grants > 0 && shared.refusals > 0;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) { return tessera::testing::Main(argc, argv); }
