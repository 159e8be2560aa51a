// Finding the loaded driver and choosing what to hand out, from many threads at once.
#include "entry/driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "entry/elf_object.h"

namespace tessera::fence {
namespace {

void* Load(const char* name) {
  void* handle =
      dlopen((std::string(FENCE_FAKE_DRIVER) + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  return handle;
}

bool IsCuda(const LoadedObject& object, void* context) {
  if (std::string(object.elf.soname()) != "libcuda.so.1") return false;
  *static_cast<ElfObject*>(context) = object.elf;
  return true;
}

TEST(Driver, NothingIsFoundBeforeOneIsLoaded) {
  EXPECT_EQ(DriverFunction(FindEntry("cuInit")), nullptr);
  EXPECT_EQ(DriverFunction(FindEntry("nvmlInit_v2")), nullptr);
  int someone_else = 0;
  EXPECT_EQ(Substitute(FindEntry("cuInit"), &someone_else), &someone_else);
  EXPECT_EQ(Substitute(FindEntry("cuInit"), nullptr), nullptr);
}

TEST(ElfObject, FindsWhatTheDynamicLinkerFinds) {
  void* handle = Load("libcuda.so.1");
  ElfObject object;
  ASSERT_TRUE(ForEachObject(IsCuda, &object));
  for (EntryIndex entry = 0; entry < EntryCount(); ++entry) {
    const char* name = EntryName(entry);
    EXPECT_EQ(object.Find(name), dlsym(handle, name)) << name;
  }
  EXPECT_EQ(object.Find("cuNoSuchFunction"), nullptr);
  EXPECT_EQ(object.Find(""), nullptr);
  EXPECT_EQ(object.Find("strcmp"), nullptr) << "imported, not defined";
  EXPECT_EQ(ElfObject().Find("cuInit"), nullptr);
}

TEST(Driver, ThreadsThatComeFirstTogetherAgree) {
  std::atomic<bool> go = false;
  std::atomic<int> wrong = 0;
  void* cuda = Load("libcuda.so.1");
  void* nvml = Load("libnvidia-ml.so.1");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      while (!go) {
      }
      for (EntryIndex entry = 0; entry < EntryCount(); ++entry) {
        void* real = dlsym(EntryLibrary(entry) == Library::kCuda ? cuda : nvml, EntryName(entry));
        if (DriverFunction(entry) != real) ++wrong;
        if (IsHooked(entry) && Substitute(entry, real) != WrapperOf(entry)) ++wrong;
      }
    });
  }
  go = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(LibcFunction, IsLibcsOwn) {
  EXPECT_NE(LibcFunction("dlsym"), nullptr);
  EXPECT_NE(LibcFunction("dladdr1"), nullptr);
  EXPECT_EQ(LibcFunction("cuInit"), nullptr);
}

}  // namespace
}  // namespace tessera::fence
