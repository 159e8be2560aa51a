// Memory that comes from elsewhere: external memory is charged to who imports it; what another call
// of this slice has charged already (IPC, pool pointers) is charged once, to its owner.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "tests/integration/coverage/row.h"

namespace tessera::testing {
namespace {

struct External {
  CUexternalMemory memory = nullptr;
  CUdeviceptr buffer = 0;
  CUmipmappedArray mipmap = nullptr;
};

// Stands for what a graphics API would export: an opaque descriptor of `bytes`.
int OpaqueDescriptor(std::uint64_t bytes) {
  int fd = ::memfd_create("external", MFD_CLOEXEC);
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

using Import = std::function<decltype(cuImportExternalMemory)>;

CUresult ImportBytes(const Import& import, std::uint64_t bytes, External& external) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC descriptor{};
  descriptor.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  descriptor.handle.fd = OpaqueDescriptor(bytes);
  descriptor.size = bytes;
  CUresult result = import(&external.memory, &descriptor);
  if (result != CUDA_SUCCESS) ::close(descriptor.handle.fd);  // the driver owns it only on success
  return result;
}

Steps Imported(Bench& bench, Import import, std::function<CUresult(External&)> map,
               std::function<CUresult(External&)> release) {
  auto external = std::make_shared<External>();
  Steps steps;
  steps.exceed = [=, &bench] {
    CUresult result = ImportBytes(import, bench.limit + 2 * kMiB, *external);
    if (result != CUDA_SUCCESS) return result;
    result = map(*external);
    release(*external);
    return result;
  };
  steps.take = [=] {
    CUresult result = ImportBytes(import, kPiece, *external);
    return result != CUDA_SUCCESS ? result : map(*external);
  };
  steps.release = [=] { return release(*external); };
  return steps;
}

CUresult NoMap(External&) { return CUDA_SUCCESS; }
CUresult Destroy(External& external) { return DRIVER(cuDestroyExternalMemory)(external.memory); }

// Every test process is its own peer: an allocation of this process, opened through the export
// calls, adds nothing.
Steps PoolPointer(std::function<decltype(cuMemPoolImportFromShareableHandle)> import_pool,
                  std::function<decltype(cuMemPoolImportPointer)> import_pointer) {
  struct State {
    CUmemoryPool pool = nullptr, imported = nullptr;
    CUdeviceptr pointer = 0, second = 0;
  };
  auto state = std::make_shared<State>();
  Steps steps;
  steps.charges_nothing = true;
  steps.take = [=] {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    int fd = -1;
    CUmemPoolPtrExportData data{};
    CUresult result = DRIVER(cuMemPoolCreate)(&state->pool, &props);
    if (result == CUDA_SUCCESS) {
      result = DRIVER(cuMemAllocFromPoolAsync)(&state->pointer, kPiece, state->pool, nullptr);
    }
    if (result == CUDA_SUCCESS) result = DRIVER(cuCtxSynchronize)();
    if (result == CUDA_SUCCESS) {
      result = DRIVER(cuMemPoolExportToShareableHandle)(
          &fd, state->pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    if (result == CUDA_SUCCESS) {
      result =
          import_pool(&state->imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    if (result == CUDA_SUCCESS) {
      result = DRIVER(cuMemPoolExportPointer)(&data, state->pointer);
    }
    if (result == CUDA_SUCCESS) {
      result = import_pointer(&state->second, state->imported, &data);
    }
    if (fd >= 0) ::close(fd);
    return result;
  };
  steps.release = [=] {
    DRIVER(cuMemFree_v2)(state->second);
    DRIVER(cuMemPoolDestroy)(state->imported);
    CUresult result = DRIVER(cuMemFree_v2)(state->pointer);
    return result != CUDA_SUCCESS ? result : DRIVER(cuMemPoolDestroy)(state->pool);
  };
  return steps;
}

// Another process of the slice that owns memory and hands out its IPC handle.
class Owner {
 public:
  bool Start(std::uint64_t bytes, CUipcMemHandle& handle) {
    int to_owner[2], from_owner[2];
    if (::pipe(to_owner) != 0 || ::pipe(from_owner) != 0) return false;
    std::string text = std::to_string(bytes);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(to_owner[0], 0);
      ::dup2(from_owner[1], 1);
      ::close(to_owner[1]);
      ::close(from_owner[0]);
      ::execl("/proc/self/exe", "coverage", "--own", text.c_str(), nullptr);
      ::_exit(98);
    }
    ::close(to_owner[0]);
    ::close(from_owner[1]);
    stop_ = to_owner[1];
    bool good = ::read(from_owner[0], &handle, sizeof handle) == sizeof handle;
    ::close(from_owner[0]);
    return good;
  }
  ~Owner() {
    if (child_ <= 0) return;
    ::close(stop_);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_ = -1;
  int stop_ = -1;
};

// The owner pays: opening its memory here charges nothing.
Steps Opened(std::function<decltype(cuIpcOpenMemHandle_v2)> open,
             std::function<decltype(cuIpcCloseMemHandle)> close) {
  struct State {
    Owner owner;
    CUipcMemHandle handle;
    CUdeviceptr pointer = 0;
    bool started = false;
  };
  auto state = std::make_shared<State>();
  state->started = state->owner.Start(kPiece, state->handle);
  Steps steps;
  steps.charges_nothing = true;
  steps.take = [=] {
    if (!state->started) return CUDA_ERROR_UNKNOWN;
    return open(&state->pointer, state->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  };
  steps.release = [=] { return close(state->pointer); };
  return steps;
}

}  // namespace

int OwnForOthers(std::uint64_t bytes) {
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  CUipcMemHandle handle{};
  CUresult result = DRIVER(cuInit)(0);
  if (result == CUDA_SUCCESS) result = DRIVER(cuCtxCreate_v2)(&context, 0, 0);
  if (result == CUDA_SUCCESS) result = DRIVER(cuMemAlloc_v2)(&pointer, bytes);
  if (result == CUDA_SUCCESS) result = DRIVER(cuIpcGetMemHandle)(&handle, pointer);
  if (result != CUDA_SUCCESS || ::write(1, &handle, sizeof handle) != sizeof handle) return 1;
  char end = 0;
  while (::read(0, &end, 1) > 0) {
  }
  return 0;
}

void RegisterImports(std::vector<Entry>& entries) {
  entries.push_back({"cuImportExternalMemory", [](Bench& bench, void* function) {
                       return Imported(bench, AS(cuImportExternalMemory, function), NoMap, Destroy);
                     }});
  entries.push_back({"cuDestroyExternalMemory", [](Bench& bench, void* function) {
                       return Imported(
                           bench, DRIVER(cuImportExternalMemory), NoMap, [=](External& external) {
                             return AS(cuDestroyExternalMemory, function)(external.memory);
                           });
                     }});
  entries.push_back({"cuExternalMemoryGetMappedBuffer", [](Bench& bench, void* function) {
                       return Imported(
                           bench, DRIVER(cuImportExternalMemory),
                           [=](External& external) {
                             CUDA_EXTERNAL_MEMORY_BUFFER_DESC descriptor{};
                             descriptor.size = kPiece;
                             return AS(cuExternalMemoryGetMappedBuffer, function)(
                                 &external.buffer, external.memory, &descriptor);
                           },
                           [](External& external) {
                             CUresult result = DRIVER(cuMemFree_v2)(external.buffer);
                             CUresult destroyed = Destroy(external);
                             return result != CUDA_SUCCESS ? result : destroyed;
                           });
                     }});
  entries.push_back({"cuExternalMemoryGetMappedMipmappedArray", [](Bench& bench, void* function) {
                       return Imported(
                           bench, DRIVER(cuImportExternalMemory),
                           [=](External& external) {
                             CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC descriptor{};
                             descriptor.arrayDesc.Width = 1024;
                             descriptor.arrayDesc.Height = 1024;
                             descriptor.arrayDesc.Format = CU_AD_FORMAT_FLOAT;
                             descriptor.arrayDesc.NumChannels = 4;
                             descriptor.numLevels = 1;
                             return AS(cuExternalMemoryGetMappedMipmappedArray, function)(
                                 &external.mipmap, external.memory, &descriptor);
                           },
                           [](External& external) {
                             CUresult result = DRIVER(cuMipmappedArrayDestroy)(external.mipmap);
                             CUresult destroyed = Destroy(external);
                             return result != CUDA_SUCCESS ? result : destroyed;
                           });
                     }});
  entries.push_back({"cuMemPoolImportPointer", [](Bench&, void* function) {
                       return PoolPointer(DRIVER(cuMemPoolImportFromShareableHandle),
                                          AS(cuMemPoolImportPointer, function));
                     }});
  entries.push_back({"cuMemPoolImportFromShareableHandle", [](Bench&, void* function) {
                       return PoolPointer(AS(cuMemPoolImportFromShareableHandle, function),
                                          DRIVER(cuMemPoolImportPointer));
                     }});
  for (const char* symbol : {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"}) {
    entries.push_back({symbol, [](Bench&, void* function) {
                         return Opened(AS(cuIpcOpenMemHandle_v2, function),
                                       DRIVER(cuIpcCloseMemHandle));
                       }});
  }
  entries.push_back({"cuIpcCloseMemHandle", [](Bench&, void* function) {
                       return Opened(DRIVER(cuIpcOpenMemHandle_v2),
                                     AS(cuIpcCloseMemHandle, function));
                     }});
}

}  // namespace tessera::testing
