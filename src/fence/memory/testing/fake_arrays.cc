// Arrays and external memory.
#include "memory/testing/fake_state.h"

namespace tessera::fence::testing::fake {

namespace {

CUresult CreateSparse(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR*) {
  Lock lock(D().mutex);
  auto* array = new Array{t_current, 0};
  D().arrays.insert(array);
  *handle = reinterpret_cast<CUarray>(array);
  return CUDA_SUCCESS;
}
CUresult CreateArray(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* d) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  auto* array = new Array{t_current, d->Width * d->Height * 4};
  D().arrays.insert(array);
  D().bytes[t_current->card] += Blocks(array->bytes);
  *handle = reinterpret_cast<CUarray>(array);
  return CUDA_SUCCESS;
}
CUresult EndArray(CUarray handle) {
  Lock lock(D().mutex);
  auto* array = reinterpret_cast<Array*>(handle);
  if (D().arrays.erase(array) == 0) return CUDA_ERROR_INVALID_HANDLE;
  EndBindingsOf(reinterpret_cast<std::uint64_t>(handle));
  D().bytes[array->context->card] -= Blocks(array->bytes);
  delete array;
  return CUDA_SUCCESS;
}
CUresult ArrayRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle, CUdevice) {
  Lock lock(D().mutex);
  out->size = reinterpret_cast<Array*>(handle)->bytes;
  return CUDA_SUCCESS;
}
CUresult Import(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* d) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  *out = reinterpret_cast<CUexternalMemory>(new Array{t_current, d->size});
  return CUDA_SUCCESS;
}
CUresult EndImport(CUexternalMemory memory) {
  delete reinterpret_cast<Array*>(memory);
  return CUDA_SUCCESS;
}

}  // namespace

void PlaceArrays() {
  real::cuArray3DCreate_v2 = CreateSparse;
  real::cuArrayCreate_v2 = Watched<Call::kCreateArray, CreateArray>;
  real::cuArrayDestroy = EndArray;
  real::cuArrayGetMemoryRequirements = ArrayRequirements;
  real::cuImportExternalMemory = Import;
  real::cuDestroyExternalMemory = EndImport;
}

}  // namespace tessera::fence::testing::fake
