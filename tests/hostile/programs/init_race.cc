// CUDA_VISIBLE_DEVICES around cuInit: what other threads and children see and set while the driver
// is being initialised, and what is there afterwards. The driver's cuInit is made slow from
// outside, so that all of it happens inside.
//
//   init_race WHAT   prints "ok", or what was wrong
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "calls.h"

using namespace tessera::hostile;

extern char** environ;

namespace {

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";

std::string Value(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "(unset)" : value;
}

int Entries(const char* name) {
  int count = 0;
  const std::size_t length = std::strlen(name);
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    count += std::strncmp(*at, name, length) == 0 && (*at)[length] == '=';
  }
  return count;
}

int g_wrong = 0;

void Expect(bool right, const std::string& what) {
  if (right || g_wrong++ > 0) return;
  Say(("wrong: " + what).c_str());
}

// Starts cuInit in a thread and answers when that is inside the driver.
std::thread InDriver() {
  std::thread thread([] { Must(cuInit(0), "cuInit"); });
  usleep(100'000);
  return thread;
}

// Every change that another thread makes meanwhile must still be there afterwards.
void SetMeanwhile(const std::string& before) {
  setenv("HOSTILE_OLD", "old", 1);
  setenv("HOSTILE_GONE", "there", 1);
  std::thread initialising = InDriver();
  setenv("HOSTILE_OLD", "changed", 1);
  unsetenv("HOSTILE_GONE");
  for (int i = 0; i < 200; ++i) setenv(("HOSTILE_NEW_" + std::to_string(i)).c_str(), "new", 1);
  initialising.join();
  Expect(Value("HOSTILE_OLD") == "changed",
         "a variable changed during cuInit is " + Value("HOSTILE_OLD"));
  Expect(Value("HOSTILE_GONE") == "(unset)", "a variable removed during cuInit is back");
  for (int i = 0; i < 200; ++i) {
    const std::string name = "HOSTILE_NEW_" + std::to_string(i);
    Expect(Value(name.c_str()) == "new", name + ", set during cuInit, is lost");
  }
  Expect(Value(kVariable) == before, "CUDA_VISIBLE_DEVICES is " + Value(kVariable) + " afterwards");
}

// The program sets the very variable meanwhile: its word stands. The driver may then show it a card
// that is not in its slice; there is nothing to be had on that.
void SetTheVariableMeanwhile(const std::string&) {
  std::thread initialising = InDriver();
  setenv(kVariable, "0", 1);
  initialising.join();
  Expect(Value(kVariable) == "0",
         "CUDA_VISIBLE_DEVICES, set during cuInit, is " + Value(kVariable));
  Expect(Entries(kVariable) == 1, "CUDA_VISIBLE_DEVICES stands there twice");
  CUcontext context = nullptr;
  const CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
  Expect(result == CUDA_ERROR_OUT_OF_MEMORY,
         "a context on another card: " + std::to_string(result));
}

void UnsetTheVariableMeanwhile(const std::string&) {
  std::thread initialising = InDriver();
  unsetenv(kVariable);
  initialising.join();
  Expect(Value(kVariable) == "(unset)",
         "CUDA_VISIBLE_DEVICES, removed during cuInit, is " + Value(kVariable));
}

// A child that is forked while another thread is inside cuInit.
void ForkMeanwhile(const std::string& before) {
  std::thread initialising = InDriver();
  const pid_t child = fork();
  if (child == 0) {
    Expect(Value(kVariable) == before,
           "CUDA_VISIBLE_DEVICES is " + Value(kVariable) + " in a child forked during cuInit");
    const CUresult result = cuInit(0);
    Expect(result == CUDA_SUCCESS,
           "cuInit is " + std::to_string(result) + " in a child forked during cuInit");
    Expect(Value(kVariable) == before,
           "CUDA_VISIBLE_DEVICES is " + Value(kVariable) + " after cuInit in the child");
    std::fflush(stdout);
    _exit(g_wrong);
  }
  int status = 0;
  waitpid(child, &status, 0);
  g_wrong += status != 0;
  initialising.join();
  Expect(Value(kVariable) == before, "CUDA_VISIBLE_DEVICES is " + Value(kVariable) + " afterwards");
}

// Thirty-two threads initialise at once while others read the environment without pause.
void Threads(const std::string& before) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers, initialising;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const std::string path = Value("PATH");
        Expect(path != "(unset)", "PATH cannot be read during cuInit");
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 32; ++i) initialising.emplace_back([] { Must(cuInit(0), "cuInit"); });
    for (std::thread& thread : initialising) thread.join();
    initialising.clear();
    Expect(Value(kVariable) == before,
           "CUDA_VISIBLE_DEVICES is " + Value(kVariable) + " afterwards");
  }
  stop = true;
  for (std::thread& thread : readers) thread.join();
}

// No environment at all.
void Cleared(const std::string&) {
  std::string path = Value("PATH");
  clearenv();
  Must(cuInit(0), "cuInit");
  Expect(Value(kVariable) == "(unset)", "CUDA_VISIBLE_DEVICES appeared");
  int count = 0;
  Must(cuDeviceGetCount(&count), "cuDeviceGetCount");
  Expect(count == 1, "the slice has " + std::to_string(count) + " cards");
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  const struct {
    const char* name;
    void (*run)(const std::string&);
  } cases[] = {{"set", SetMeanwhile},
               {"set-it", SetTheVariableMeanwhile},
               {"unset-it", UnsetTheVariableMeanwhile},
               {"fork", ForkMeanwhile},
               {"threads", Threads},
               {"cleared", Cleared}};
  for (const auto& one : cases) {
    if (std::strcmp(one.name, words[1]) != 0) continue;
    one.run(Value(kVariable));
    if (g_wrong == 0) Say("ok");
    return g_wrong;
  }
  return 2;
}
