// The built library, opened as programs open it, on a node of the test's own.
#pragma once

#include <dlfcn.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <gtest/gtest.h>
#include <nvml.h>

#include <string>

#include "sim/state/testing/children.h"

namespace tessera::sim::nvml {

class Library {
 public:
  Library() : handle_(dlopen(SIMNVML_PATH, RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  template <typename Function>
  Function* Get(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }
  bool good() const { return handle_ != nullptr; }

 private:
  void* handle_;
};

// CALL(nvmlDeviceGetName, device, text, 96): the function of the library under test.
#define CALL(name, ...) (library_.Get<decltype(name)>(#name)(__VA_ARGS__))

class NvmlTest : public ::testing::Test {
 protected:
  explicit NvmlTest(const NodeDescription& description = DefaultNode(2)) : node_(description) {
    setenv(kEnvNodePath, node_.path().c_str(), 1);
  }
  void SetUp() override {
    ASSERT_TRUE(library_.good()) << dlerror();
    ASSERT_EQ(CALL(nvmlInit_v2), NVML_SUCCESS);
    ASSERT_EQ(CALL(nvmlDeviceGetHandleByIndex_v2, 0, &card_), NVML_SUCCESS);
  }

  testing::TestNode node_;
  Library library_;  // closed first, so that the next test's library finds the next test's node
  nvmlDevice_t card_ = nullptr;
};

}  // namespace tessera::sim::nvml
