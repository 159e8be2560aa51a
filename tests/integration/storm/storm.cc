// A storm of SIGKILLs: 16 processes of one slice take and give back card memory by every kind of
// call; one after the other is killed at a random instant and replaced.
//
//   storm KILLS [SEED] [--against-driver]    exit 1 when a figure is off, a call waited too long,
//                                            or a survivor was disturbed
//
// After each kill every survivor finishes its call and stands still; then, within one second, the
// slice's total must equal the sum over the survivors byte for byte: nothing of the dead is left.
// With --against-driver that sum must also equal what the driver counts for them; without it the
// largest difference is printed.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sim/state/node_state.h"
#include "tests/integration/support/driver.h"
#include "tests/integration/support/figures.h"
#include "tests/integration/support/holdings.h"

namespace tessera::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kWorkers = 16;
constexpr auto kBound =
    milliseconds(1000);  // the promise: no wait is longer, and no byte is off for longer

// Shared with the workers; one cache line each so that they do not disturb one another.
struct alignas(64) Worker {
  std::atomic<std::uint64_t> parked;  // the pause that this worker stands still for
  std::atomic<std::uint64_t> steps;
  std::atomic<std::uint64_t> longest_ns;  // of one step
  std::atomic<int> wrong_code;            // first code that is neither success nor out of memory
};
struct Control {
  std::atomic<std::uint64_t> pause;  // odd = stand still
  Worker workers[kWorkers];
};

[[noreturn]] void Work(Control& control, int index, std::uint64_t seed) {
  Worker& self = control.workers[index];
  CUcontext context = nullptr;
  CUresult result = DRIVER(cuInit)(0);
  if (result == CUDA_SUCCESS) result = DRIVER(cuCtxCreate_v2)(&context, 0, 0);
  if (result != CUDA_SUCCESS) {
    self.wrong_code = result;
    self.parked = ~std::uint64_t{0};
    ::pause();
  }
  Holdings holdings(context, seed);
  for (;;) {
    std::uint64_t pause = control.pause.load();
    if (pause % 2 == 1) {
      if (self.parked.load() < pause) {
        // Pools give back at synchronisations: settle what has been freed, so that only what is
        // held is compared.
        std::size_t free = 0, total = 0;
        DRIVER(cuCtxSynchronize)();
        DRIVER(cuMemGetInfo_v2)(&free, &total);
      }
      self.parked = pause;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      continue;
    }
    auto begin = Clock::now();
    result = holdings.Step();
    auto took = static_cast<std::uint64_t>((Clock::now() - begin).count());
    if (took > self.longest_ns.load()) self.longest_ns = took;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY && self.wrong_code == 0) {
      self.wrong_code = result;
    }
    self.steps.fetch_add(1);
  }
}

class Storm {
 public:
  Storm(Control& control, std::uint64_t seed, bool against_driver)
      : control_(control), random_(seed), against_driver_(against_driver) {
    for (int i = 0; i < kWorkers; ++i) Start(i);
  }
  ~Storm() {
    for (int i = 0; i < kWorkers; ++i) Kill(i);
  }

  // One kill and its check. False when something did not hold; says what.
  bool Strike(int number) {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 2000));
    int victim = static_cast<int>(random_() % kWorkers);
    steps_ += control_.workers[victim].steps.load();
    Kill(victim);
    auto killed = Clock::now();
    Start(victim);  // comes up during the check, as in life
    std::uint64_t pause = control_.pause.fetch_add(1) + 1;
    bool good = AwaitStandstill(pause, number) && AwaitAgreement(killed, number) && Healthy(number);
    control_.pause.fetch_add(1);
    return good;
  }

  std::uint64_t steps() const {
    std::uint64_t all = steps_;
    for (const Worker& worker : control_.workers) all += worker.steps.load();
    return all;
  }
  std::uint64_t longest_ns() const {
    std::uint64_t longest = longest_ns_;
    for (const Worker& worker : control_.workers) {
      longest = std::max(longest, worker.longest_ns.load());
    }
    return longest;
  }
  milliseconds slowest_agreement() const { return slowest_; }
  std::uint64_t largest_drift() const { return drift_; }

 private:
  void Start(int index) {
    Worker& worker = control_.workers[index];
    longest_ns_ = std::max(longest_ns_, worker.longest_ns.load());
    worker.parked = 0;
    worker.steps = 0;
    worker.longest_ns = 0;
    worker.wrong_code = 0;
    std::uint64_t seed = random_();
    std::fflush(nullptr);
    pid_t child = ::fork();
    if (child == 0) {
      std::string id = std::to_string(index), text = std::to_string(seed);
      ::execl("/proc/self/exe", "storm", "--worker", id.c_str(), text.c_str(), nullptr);
      ::_exit(98);
    }
    pids_[index] = child;
  }

  void Kill(int index) {
    ::kill(pids_[index], SIGKILL);
    ::waitpid(pids_[index], nullptr, 0);
  }

  // Starting up is not a step, so a fresh worker may take longer than the bound on two busy cores.
  bool AwaitStandstill(std::uint64_t pause, int number) {
    auto until = Clock::now() + 20 * kBound;
    for (int i = 0; i < kWorkers; ++i) {
      while (control_.workers[i].parked.load() < pause) {
        int status = 0;
        if (::waitpid(pids_[i], &status, WNOHANG) == pids_[i]) {
          std::printf("kill %d: survivor %d ended by itself, status %d\n", number, i, status);
          return false;
        }
        if (Clock::now() > until) {
          std::printf("kill %d: survivor %d never came to the end of its call\n", number, i);
          return false;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
    return true;
  }

  bool AwaitAgreement(Clock::time_point killed, int number) {
    auto standstill = Clock::now();
    for (;;) {
      // Any call that asks or takes sweeps; this process is an ordinary member of the slice.
      std::size_t free = 0, total = 0;
      DRIVER(cuMemGetInfo_v2)(&free, &total);
      sim::SweepDeadProcesses();
      Figures now = ReadFigures();
      const bool as_driver = now.ledger_live == now.driver_total;
      if (now.ledger_total == now.ledger_live && (as_driver || !against_driver_)) {
        std::uint64_t drift = now.ledger_live > now.driver_total
                                  ? now.ledger_live - now.driver_total
                                  : now.driver_total - now.ledger_live;
        drift_ = std::max(drift_, drift);
        auto took =
            std::chrono::duration_cast<milliseconds>(Clock::now() - std::max(killed, standstill));
        slowest_ = std::max(slowest_, took);
        return true;
      }
      if (Clock::now() - standstill > kBound) {
        std::printf("kill %d: after %lld ms ledger total %llu, live sum %llu, driver %llu bytes\n",
                    number, static_cast<long long>(kBound.count()),
                    static_cast<unsigned long long>(now.ledger_total),
                    static_cast<unsigned long long>(now.ledger_live),
                    static_cast<unsigned long long>(now.driver_total));
        PrintDifferences();
        return false;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  bool Healthy(int number) {
    for (int i = 0; i < kWorkers; ++i) {
      if (int code = control_.workers[i].wrong_code.load(); code != 0) {
        std::printf("kill %d: survivor %d got code %d\n", number, i, code);
        return false;
      }
    }
    return true;
  }

  Control& control_;
  std::mt19937_64 random_;
  const bool against_driver_;
  std::uint64_t drift_ = 0;
  pid_t pids_[kWorkers] = {};
  std::uint64_t steps_ = 0;
  std::uint64_t longest_ns_ = 0;
  milliseconds slowest_{0};
};

constexpr int kControlDescriptor = 200;

Control* MapControl() {
  void* at =
      ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, kControlDescriptor, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Control*>(at);
}

int Main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--worker") {
    Work(*MapControl(), std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10));
  }
  int kills = argc > 1 ? std::atoi(argv[1]) : 0;
  if (kills <= 0) {
    std::fprintf(stderr, "usage: storm KILLS [SEED] [--against-driver]   KILLS >= 1\n");
    return 2;
  }
  bool against_driver = std::string(argv[argc - 1]) == "--against-driver";
  std::uint64_t seed = argc > (against_driver ? 3 : 2) ? std::strtoull(argv[2], nullptr, 10) : 1;
  int fd = ::memfd_create("storm", 0);
  if (fd < 0 || ::ftruncate(fd, sizeof(Control)) != 0 || ::dup2(fd, kControlDescriptor) < 0) {
    std::perror("storm");
    return 2;
  }
  Control* control = MapControl();
  CUcontext context = nullptr;
  if (DRIVER(cuInit)(0) != CUDA_SUCCESS || DRIVER(cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS) {
    std::fprintf(stderr, "storm: no context\n");
    return 1;
  }
  auto begin = Clock::now();
  Storm storm(*control, seed, against_driver);
  int off = 0;
  for (int number = 1; number <= kills && off == 0; ++number) {
    if (!storm.Strike(number)) ++off;
    if (number % 500 == 0) {
      std::printf("%d of %d kills, %llu calls survived, seed %llu\n", number, kills,
                  static_cast<unsigned long long>(storm.steps()),
                  static_cast<unsigned long long>(seed));
      std::fflush(stdout);
    }
  }
  double longest_ms = static_cast<double>(storm.longest_ns()) / 1e6;
  bool waited = storm.longest_ns() > 1'000'000'000;
  std::printf(
      "%d kills in %llds: %s; longest call %.1f ms; slowest agreement %lld ms; "
      "ledger and driver at most %llu KiB apart\n",
      kills,
      static_cast<long long>(
          std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin).count()),
      off == 0 ? "0 bytes off" : "FAILED", longest_ms,
      static_cast<long long>(storm.slowest_agreement().count()),
      static_cast<unsigned long long>(storm.largest_drift() >> 10));
  return off == 0 && !waited ? 0 : 1;
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) { return tessera::testing::Main(argc, argv); }
