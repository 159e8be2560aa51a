#include "sim/cuda/testing/driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

extern char** environ;

namespace tessera::sim {
namespace {

std::map<std::string, int (*)(const std::string&)>& Children() {
  static auto* children = new std::map<std::string, int (*)(const std::string&)>;
  return *children;
}

NodeState* node = nullptr;
void* library = nullptr;

void MakeNode() {
  char directory[] = "/tmp/simcuda-test-XXXXXX";
  if (!mkdtemp(directory)) std::abort();
  const std::string path = std::string(directory) + "/node";
  NodeDescription description = DefaultNode(3);
  description.specs[2].link_type[0] = description.specs[0].link_type[2] =
      0;  // 0 and 2 cannot reach each other
  if (CreateNode(path.c_str(), description) != 0) std::abort();
  setenv(kEnvNodePath, path.c_str(), 1);
}

}  // namespace

void* DriverFunction(const char* name) {
  void* function = dlsym(library, name);
  if (!function) {
    std::fprintf(stderr, "no %s in the driver\n", name);
    std::abort();
  }
  return function;
}

NodeState& TestNode() { return *node; }

std::uint64_t UsedOnCard(int card) {
  return TestNode().specs[card].memory_bytes - TestNode().specs[card].reserved_bytes -
         FreeBytes(card);
}

std::uint64_t HeldHere(int card) {
  for (const ProcessSlot& slot : TestNode().processes)
    if ((slot.owner.load() & 0x3FFFFF) == static_cast<std::uint64_t>(getpid()))
      return HeldBytes(slot.cards[card]);
  return 0;
}

AddChild::AddChild(const char* name, int (*function)(const std::string&)) {
  Children()[name] = function;
}

int RunAgain(const std::string& name, const std::string& argument,
             const std::vector<std::string>& environment) {
  std::vector<std::string> words = {"/proc/self/exe", "--child", name, argument};
  std::vector<char*> arguments, variables;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> more = environment;
  for (std::string& variable : more) variables.push_back(variable.data());
  for (char** variable = environ; *variable; ++variable) variables.push_back(*variable);
  variables.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), variables.data()) !=
      0)
    return -1;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TestContext::TestContext(CUdevice device) {
  EXPECT_EQ(CU(cuCtxCreate_v2)(&handle, 0, device), CUDA_SUCCESS);
}
TestContext::~TestContext() { EXPECT_EQ(CU(cuCtxDestroy_v2)(handle), CUDA_SUCCESS); }

}  // namespace tessera::sim

int main(int argc, char** argv) {
  using namespace tessera::sim;
  const bool child = argc == 4 && std::string(argv[1]) == "--child";
  if (!child) MakeNode();
  node = MapNode(getenv(kEnvNodePath));
  UseNode(node);
  library = dlopen(SIMCUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library || (!node && !child)) {
    std::fprintf(stderr, "%s\n", library ? "no node" : dlerror());
    return 2;
  }
  if (child) return Children().at(argv[2])(argv[3]);
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  const std::string path = getenv(kEnvNodePath);
  unlink(path.c_str());
  rmdir(path.substr(0, path.rfind('/')).c_str());
  return result;
}
