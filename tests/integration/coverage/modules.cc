// Code and globals of modules and libraries take card memory: measured and charged like contexts.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/integration/coverage/row.h"

namespace tessera::testing {
namespace {

// 12 MiB of global memory, so that the image cannot hide in a block that is charged already.
constexpr char kImage[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 16 .b8 tessera_global[12582912];
.visible .entry tessera_kernel(.param .u64 tessera_kernel_param_0)
{
  ret;
}
)";

std::string ImageFile() {
  char path[] = "/tmp/tessera-module-XXXXXX";
  int fd = ::mkstemp(path);
  if (fd < 0 || ::write(fd, kImage, sizeof kImage - 1) != sizeof kImage - 1) std::abort();
  ::close(fd);
  return path;
}

// The image as the compiler wraps it: a fat binary with one PTX entry (header 16 bytes, entry
// header 64 bytes).
std::vector<char> FatBinary() {
  const std::uint64_t payload = (sizeof kImage + 7) / 8 * 8;
  std::vector<char> bytes(16 + 64 + payload, 0);
  auto put = [&bytes](std::size_t at, auto value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  put(0, std::uint32_t{0xBA55ED50});
  put(4, std::uint16_t{1});
  put(6, std::uint16_t{16});
  put(8, std::uint64_t{64 + payload});
  put(16, std::uint16_t{1});  // kind: PTX
  put(18, std::uint16_t{0x101});
  put(20, std::uint32_t{64});  // entry header
  put(24, payload);
  put(16 + 28, std::uint32_t{52});  // sm_52
  std::memcpy(bytes.data() + 80, kImage, sizeof kImage);
  return bytes;
}

template <typename Handle>
Steps Loaded(Bench& bench, std::function<CUresult(Handle*)> load,
             std::function<CUresult(Handle)> unload) {
  auto handle = std::make_shared<Handle>(nullptr);
  Steps steps;
  steps.exceed = [=, &bench] {
    bench.FillLeaving(4 * kMiB);
    CUresult result = load(handle.get());
    bench.EmptyFill();
    return result;
  };
  steps.take = [=] { return load(handle.get()); };
  steps.release = [=] { return unload(*handle); };
  return steps;
}

CUresult Unload(CUmodule module) { return DRIVER(cuModuleUnload)(module); }
CUresult UnloadLibrary(CUlibrary library) { return DRIVER(cuLibraryUnload)(library); }

// A library is loaded into a context when something of it is first used.
CUresult Touch(CUlibrary library) {
  CUmodule module = nullptr;
  return DRIVER(cuLibraryGetModule)(&module, library);
}

}  // namespace

void RegisterModules(std::vector<Entry>& entries) {
  entries.push_back({"cuModuleLoad", [](Bench& bench, void* function) {
                       return Loaded<CUmodule>(
                           bench,
                           [=](CUmodule* module) {
                             std::string path = ImageFile();
                             CUresult result = AS(cuModuleLoad, function)(module, path.c_str());
                             ::unlink(path.c_str());
                             return result;
                           },
                           Unload);
                     }});
  entries.push_back(
      {"cuModuleLoadData", [](Bench& bench, void* function) {
         return Loaded<CUmodule>(
             bench,
             [=](CUmodule* module) { return AS(cuModuleLoadData, function)(module, kImage); },
             Unload);
       }});
  entries.push_back({"cuModuleLoadDataEx", [](Bench& bench, void* function) {
                       return Loaded<CUmodule>(
                           bench,
                           [=](CUmodule* module) {
                             return AS(cuModuleLoadDataEx, function)(module, kImage, 0, nullptr,
                                                                     nullptr);
                           },
                           Unload);
                     }});
  entries.push_back({"cuModuleLoadFatBinary", [](Bench& bench, void* function) {
                       return Loaded<CUmodule>(
                           bench,
                           [=](CUmodule* module) {
                             static const std::vector<char> image = FatBinary();
                             return AS(cuModuleLoadFatBinary, function)(module, image.data());
                           },
                           Unload);
                     }});
  entries.push_back(
      {"cuModuleUnload", [](Bench& bench, void* function) {
         return Loaded<CUmodule>(
             bench, [](CUmodule* module) { return DRIVER(cuModuleLoadData)(module, kImage); },
             [=](CUmodule module) { return AS(cuModuleUnload, function)(module); });
       }});
  auto load_library = [](CUlibrary* library) {
    CUresult result =
        DRIVER(cuLibraryLoadData)(library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result != CUDA_SUCCESS) return result;
    result = Touch(*library);
    if (result != CUDA_SUCCESS) UnloadLibrary(*library);
    return result;
  };
  entries.push_back({"cuLibraryLoadData", [](Bench& bench, void* function) {
                       return Loaded<CUlibrary>(
                           bench,
                           [=](CUlibrary* library) {
                             CUresult result = AS(cuLibraryLoadData, function)(
                                 library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0);
                             if (result != CUDA_SUCCESS) return result;
                             result = Touch(*library);
                             if (result != CUDA_SUCCESS) UnloadLibrary(*library);
                             return result;
                           },
                           UnloadLibrary);
                     }});
  entries.push_back({"cuLibraryLoadFromFile", [](Bench& bench, void* function) {
                       return Loaded<CUlibrary>(
                           bench,
                           [=](CUlibrary* library) {
                             std::string path = ImageFile();
                             CUresult result = AS(cuLibraryLoadFromFile, function)(
                                 library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
                             ::unlink(path.c_str());
                             if (result != CUDA_SUCCESS) return result;
                             result = Touch(*library);
                             if (result != CUDA_SUCCESS) UnloadLibrary(*library);
                             return result;
                           },
                           UnloadLibrary);
                     }});
  entries.push_back({"cuLibraryUnload", [load_library](Bench& bench, void* function) {
                       return Loaded<CUlibrary>(bench, load_library, [=](CUlibrary library) {
                         return AS(cuLibraryUnload, function)(library);
                       });
                     }});
}

}  // namespace tessera::testing
