// cuMemAlloc and kin: blocks of 2 MiB, shared by small requests.
#include "memory/testing/fake_state.h"

namespace tessera::fence::testing::fake {

std::uint64_t TakeAddress(std::uint64_t bytes) {
  if (const auto found = D().free_ranges.find(bytes); found != D().free_ranges.end()) {
    const std::uint64_t address = found->second;
    D().free_ranges.erase(found);
    return address;
  }
  const std::uint64_t address = D().next_address;
  D().next_address += bytes;
  return address;
}

namespace {

std::uint64_t Give(Context* context, std::uint64_t size) {
  if (size > kMiB) {
    const std::uint64_t address = TakeAddress(Blocks(size));
    D().bytes[context->card] += Blocks(size);
    D().ranges[address] = {size, context, 0, nullptr, false, 0};
    return address;
  }
  const std::uint64_t rounded = (size + 511) / 512 * 512;
  for (auto& [base, block] : D().blocks) {
    if (block.context != context || block.used + rounded > kBlock) continue;
    const std::uint64_t address = base + block.used;
    block.used += rounded;
    ++block.live;
    D().ranges[address] = {size, context, base, nullptr, false, 0};
    return address;
  }
  const std::uint64_t base = TakeAddress(kBlock);
  D().bytes[context->card] += kBlock;
  D().blocks[base] = {context, rounded, 1};
  D().ranges[base] = {size, context, base, nullptr, false, 0};
  return base;
}

CUresult MemAlloc(CUdeviceptr* pointer, std::size_t size) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  if (pointer == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (t_current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *pointer = Give(t_current, size);
  return CUDA_SUCCESS;
}
CUresult MemAllocPitch(CUdeviceptr* pointer, std::size_t* pitch, std::size_t width,
                       std::size_t height, unsigned) {
  *pitch = (width + 1023) / 1024 * 1024;  // more than the fence guesses
  return MemAlloc(pointer, *pitch * height);
}
// The 32-bit form hands out low addresses; they are charged alike.
CUresult MemAlloc32(CUdeviceptr_v1* pointer, unsigned size) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  const std::uint64_t address = D().next_low_address;
  D().next_low_address += Blocks(size);
  D().bytes[t_current->card] += Blocks(size);
  D().ranges[address] = {size, t_current, 0, nullptr, false, 0};
  *pointer = static_cast<CUdeviceptr_v1>(address);
  return CUDA_SUCCESS;
}
CUresult MemFree32(CUdeviceptr_v1 pointer) {
  Lock lock(D().mutex);
  if (D().ranges.count(pointer) == 0) return CUDA_ERROR_INVALID_VALUE;
  D().bytes[D().ranges[pointer].context->card] -= Blocks(D().ranges[pointer].size);
  D().ranges.erase(pointer);
  return CUDA_SUCCESS;
}
// Pages come to the card when they are touched (SetResident).
CUresult MemAllocManaged(CUdeviceptr* pointer, std::size_t size, unsigned) {
  Lock lock(D().mutex);
  if (const CUresult r = Failing(); r != CUDA_SUCCESS) return r;
  *pointer = TakeAddress(Blocks(size));
  D().ranges[*pointer] = {size, t_current, 0, nullptr, true, 0};
  return CUDA_SUCCESS;
}

}  // namespace

void TakeBack(std::uint64_t address) {
  const Range range = D().ranges[address];
  D().ranges.erase(address);
  if (range.pool != nullptr) {
    Pool* pool = reinterpret_cast<Pool*>(range.pool);
    pool->used -= Blocks(range.size);
    D().free_ranges.emplace(Blocks(range.size), address);
    if (pool->destroyed && pool->used == 0) {
      D().bytes[pool->card] -= pool->reserved;
      EndPool(pool);
    }
    return;
  }
  if (range.block == 0) {
    D().bytes[range.context->card] -= range.managed ? range.resident : Blocks(range.size);
    D().free_ranges.emplace(Blocks(range.size), address);
    return;
  }
  Block& block = D().blocks[range.block];
  if (--block.live == 0) {
    D().bytes[range.context->card] -= kBlock;
    D().free_ranges.emplace(kBlock, range.block);
    D().blocks.erase(range.block);
  }
}

CUresult MemFree(CUdeviceptr pointer) {
  Lock lock(D().mutex);
  if (D().fail != CUDA_SUCCESS) return Failing();
  if (D().ranges.count(pointer) == 0) return CUDA_ERROR_INVALID_VALUE;
  TakeBack(pointer);
  return CUDA_SUCCESS;
}

void PlaceLinear() {
  real::cuMemAlloc_v2 = Watched<Call::kMemAlloc, MemAlloc>;
  real::cuMemAllocPitch_v2 = MemAllocPitch;
  real::cuMemAllocManaged = MemAllocManaged;
  real::cuMemFree_v2 = Watched<Call::kMemFree, MemFree>;
  real::cuMemAlloc = MemAlloc32;
  real::cuMemFree = MemFree32;
}

}  // namespace tessera::fence::testing::fake
