// Modules, libraries, functions and kernels: device code as a context holds it.
//
// A library is code without a context; for each context that uses it, it has a module. A kernel of
// a library is a function in each of these modules. The runtime hands kernels (CUkernel) where
// functions are expected: FindFunction takes both.
//
// Thread safety: all functions may be called from any thread.
// Invariants:
//   1. A module takes its context's code memory (code of all modules together, in whole blocks)
//      from load to unload.
//   2. Variables are allocations of the module's context, filled from the image, and freed with the
//      module.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/cuda/code_image.h"
#include "sim/cuda/context.h"
#include "sim/cuda/handles.h"

namespace tessera::sim {

struct Module;
struct Library;
struct Kernel;

// A kernel's stand-in on the host: called in stream order with the launch's parameters and {grid
// xyz, block xyz}.
using HostKernel = void (*)(void** params, const unsigned* grid_and_block);

struct FunctionSettings {
  std::atomic<int> max_dynamic_shared{-1};  // -1: what is left of 48 KiB
  std::atomic<int> carveout{-1};
  std::atomic<int> cluster[3]{};
  std::atomic<int> cluster_must_be_set{0}, non_portable_cluster{0}, cluster_policy{0};
  std::atomic<int> cache_config{0};
};

struct Function {
  static constexpr HandleKind kKind = HandleKind::kFunction;
  using Handle = CUfunction;

  CUfunction handle{};
  Module* module = nullptr;
  Context* context = nullptr;
  Kernel* kernel = nullptr;  // of a library, else nullptr
  KernelInfo info;
  std::uint32_t ptx_version = 0, binary_version = 0;
  bool opaque = false;
  HostKernel host = nullptr;
  std::uint64_t duration_ns = 0;
  std::atomic<bool> loaded{false};
  FunctionSettings settings;

  // The old launch calls' state (cuParamSet*, cuFuncSetBlockShape).
  std::vector<std::uint8_t> old_params;
  int old_block[3] = {1, 1, 1};
  unsigned old_shared = 0;
};

struct Variable {
  CUdeviceptr address = 0;
  std::uint64_t size = 0;
};

struct Module {
  static constexpr HandleKind kKind = HandleKind::kModule;
  using Handle = CUmodule;

  CUmodule handle{};
  Context* context = nullptr;
  Library* library = nullptr;
  std::shared_ptr<const CodeImage> image;
  std::uint64_t charged_code = 0;
  std::mutex mutex;  // guards what follows
  std::map<std::string, std::unique_ptr<Function>, std::less<>> functions;
  std::map<std::string, Variable, std::less<>> variables;
  std::vector<CUdeviceptr> allocations;
};

struct Kernel {
  static constexpr HandleKind kKind = HandleKind::kKernel;
  using Handle = CUkernel;

  CUkernel handle{};
  Library* library = nullptr;
  std::string name;
  FunctionSettings settings;
  std::atomic<std::uint64_t> last_context{0};  // id of the context of last_function
  std::atomic<Function*> last_function{nullptr};
};

struct Library {
  static constexpr HandleKind kKind = HandleKind::kLibrary;
  using Handle = CUlibrary;

  CUlibrary handle{};
  std::mutex mutex;                                                  // guards what follows
  std::vector<std::uint8_t> bytes;                                   // own copy of the code
  std::map<std::uint32_t, std::shared_ptr<const CodeImage>> images;  // by compute capability
  std::map<Context*, Module*> modules;
  std::map<std::string, std::unique_ptr<Kernel>, std::less<>> kernels;
  std::map<std::string, Variable, std::less<>> managed;
  Context* managed_in = nullptr;  // primary context that is retained for them
};

// The driver's error for an image that is refused.
CUresult ErrorOf(ImageError error);

// A module from an image, with its memory; the context must be usable. `*module` is registered.
CUresult MakeModule(Context& context, std::shared_ptr<const CodeImage> image, Library* library,
                    Module** module);
void DestroyModule(Module& module);
// The same once its context's work is done. While some of that waits for memory, which may be for
// ever, the variables stay until the context ends.
void UnloadModule(Module& module);
CUresult FunctionOf(Module& module, std::string_view name, Function** function);
CUresult VariableOf(Module& module, std::string_view name, Variable* variable);

// The module of a library in a context, made when it is first wanted.
CUresult ModuleOf(Library& library, Context& context, Module** module);
CUresult FunctionOf(Kernel& kernel, Context& context, Function** function);

// What a launch is given: a function, or a kernel, of which the function in `context` is taken.
CUresult FindFunction(CUfunction handle, Context& context, Function** function);

// Attributes as cuFuncGetAttribute answers them.
CUresult GetAttribute(const Function& function, const FunctionSettings& settings,
                      CUfunction_attribute attribute, int* value);
CUresult SetAttribute(const Device& device, const KernelInfo& info, FunctionSettings& settings,
                      CUfunction_attribute attribute, int value);
// Largest dynamic shared memory of a launch now, and the most that can be set.
int DynamicSharedLimit(const Function& function);
int SharedOptin(const Device& device);

}  // namespace tessera::sim
