// Memory that comes from elsewhere: external memory is charged to who imports it; what another call of this slice
// has charged already (IPC, pool pointers) is charged once, to its owner.
#include <sys/mman.h>
#include <unistd.h>

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
CUresult Destroy(External& external) {
  return DRIVER(cuDestroyExternalMemory)(external.memory);
}

// Every test process is its own peer: an allocation of this process, opened through the export calls, adds nothing.
Steps PoolPointer(Bench&, void* function) {
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
      result = DRIVER(cuMemPoolImportFromShareableHandle)(
          &state->imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    if (result == CUDA_SUCCESS) {
      result = DRIVER(cuMemPoolExportPointer)(&data, state->pointer);
    }
    if (result == CUDA_SUCCESS) {
      result = AS(cuMemPoolImportPointer, function)(&state->second, state->imported, &data);
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

}  // namespace

void RegisterImports(std::vector<Entry>& entries) {
  entries.push_back({"cuImportExternalMemory", [](Bench& bench, void* function) {
                       return Imported(bench, AS(cuImportExternalMemory, function), NoMap, Destroy);
                     }});
  entries.push_back({"cuDestroyExternalMemory", [](Bench& bench, void* function) {
                       return Imported(bench, DRIVER(cuImportExternalMemory), NoMap,
                                       [=](External& external) {
                                         return AS(cuDestroyExternalMemory,
                                                   function)(external.memory);
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
                             CUresult result =
                                 DRIVER(cuMipmappedArrayDestroy)(external.mipmap);
                             CUresult destroyed = Destroy(external);
                             return result != CUDA_SUCCESS ? result : destroyed;
                           });
                     }});
  entries.push_back({"cuMemPoolImportPointer", PoolPointer});
}

}  // namespace tessera::testing
