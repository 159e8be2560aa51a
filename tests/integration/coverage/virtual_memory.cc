// cuMemCreate and its references: the memory is held until the last handle and the last mapping are
// gone.
#include <unistd.h>

#include <memory>

#include "tests/integration/coverage/row.h"

namespace tessera::testing {
namespace {

struct Chunk {
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle second = 0;
  CUdeviceptr address = 0;
  int fd = -1;
};

CUmemAllocationProp OnCard() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

using Create = std::function<decltype(cuMemCreate)>;
using Step = std::function<CUresult(Chunk&)>;

Steps Handle(Bench& bench, Create create, Step after_create, Step release) {
  auto chunk = std::make_shared<Chunk>();
  Steps steps;
  steps.exceed = [=, limit = bench.limit] {
    CUmemAllocationProp prop = OnCard();
    return create(&chunk->handle, (limit / (2 * kMiB) + 1) * 2 * kMiB, &prop, 0);
  };
  steps.take = [=] {
    CUmemAllocationProp prop = OnCard();
    CUresult result = create(&chunk->handle, kPiece, &prop, 0);
    return result != CUDA_SUCCESS ? result : after_create(*chunk);
  };
  steps.release = [=] { return release(*chunk); };
  return steps;
}

CUresult Nothing(Chunk&) { return CUDA_SUCCESS; }
CUresult ReleaseHandle(Chunk& chunk) { return DRIVER(cuMemRelease)(chunk.handle); }

CUresult Reserve(Chunk& chunk) {
  return DRIVER(cuMemAddressReserve)(&chunk.address, kPiece, 0, 0, 0);
}

CUresult Unmap(Chunk& chunk) {
  CUresult result = DRIVER(cuMemUnmap)(chunk.address, kPiece);
  return result != CUDA_SUCCESS ? result : DRIVER(cuMemAddressFree)(chunk.address, kPiece);
}

}  // namespace

void RegisterVirtualMemory(std::vector<Entry>& entries) {
  entries.push_back({"cuMemCreate", [](Bench& bench, void* function) {
                       return Handle(bench, AS(cuMemCreate, function), Nothing, ReleaseHandle);
                     }});
  entries.push_back({"cuMemRelease", [](Bench& bench, void* function) {
                       return Handle(bench, DRIVER(cuMemCreate), Nothing, [=](Chunk& chunk) {
                         return AS(cuMemRelease, function)(chunk.handle);
                       });
                     }});
  // The handle goes first: the mapping alone must keep the charge until it is undone.
  auto mapped = [](Bench& bench, auto map, auto unmap) {
    return Handle(
        bench, DRIVER(cuMemCreate),
        [=](Chunk& chunk) {
          CUresult result = Reserve(chunk);
          if (result == CUDA_SUCCESS) result = map(chunk.address, kPiece, 0, chunk.handle, 0);
          return result != CUDA_SUCCESS ? result : ReleaseHandle(chunk);
        },
        unmap);
  };
  entries.push_back({"cuMemMap", [mapped](Bench& bench, void* function) {
                       return mapped(bench, AS(cuMemMap, function), Unmap);
                     }});
  entries.push_back({"cuMemUnmap", [mapped](Bench& bench, void* function) {
                       return mapped(bench, DRIVER(cuMemMap), [=](Chunk& chunk) {
                         CUresult result = AS(cuMemUnmap, function)(chunk.address, kPiece);
                         return result != CUDA_SUCCESS
                                    ? result
                                    : DRIVER(cuMemAddressFree)(chunk.address, kPiece);
                       });
                     }});
  entries.push_back({"cuMemRetainAllocationHandle", [](Bench& bench, void* function) {
                       return Handle(
                           bench, DRIVER(cuMemCreate),
                           [=](Chunk& chunk) {
                             CUresult result = Reserve(chunk);
                             if (result == CUDA_SUCCESS) {
                               result = DRIVER(cuMemMap)(chunk.address, kPiece, 0, chunk.handle, 0);
                             }
                             if (result == CUDA_SUCCESS) {
                               result = AS(cuMemRetainAllocationHandle, function)(
                                   &chunk.second, reinterpret_cast<void*>(chunk.address));
                             }
                             if (result == CUDA_SUCCESS) result = ReleaseHandle(chunk);
                             return result != CUDA_SUCCESS ? result : Unmap(chunk);
                           },
                           [](Chunk& chunk) { return DRIVER(cuMemRelease)(chunk.second); });
                     }});
  // An export and an import of our own memory add references, not bytes. The exporter's handle goes
  // first: the import alone must keep the charge.
  auto exported = [](Bench& bench, auto share, auto import) {
    return Handle(
        bench, DRIVER(cuMemCreate),
        [=](Chunk& chunk) {
          CUresult result =
              share(&chunk.fd, chunk.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
          if (result == CUDA_SUCCESS) {
            result =
                import(&chunk.second, reinterpret_cast<void*>(static_cast<std::intptr_t>(chunk.fd)),
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
          }
          ::close(chunk.fd);
          return result != CUDA_SUCCESS ? result : ReleaseHandle(chunk);
        },
        [](Chunk& chunk) { return DRIVER(cuMemRelease)(chunk.second); });
  };
  entries.push_back({"cuMemExportToShareableHandle", [exported](Bench& bench, void* function) {
                       return exported(bench, AS(cuMemExportToShareableHandle, function),
                                       DRIVER(cuMemImportFromShareableHandle));
                     }});
  entries.push_back({"cuMemImportFromShareableHandle", [exported](Bench& bench, void* function) {
                       return exported(bench, DRIVER(cuMemExportToShareableHandle),
                                       AS(cuMemImportFromShareableHandle, function));
                     }});
}

}  // namespace tessera::testing
