#include "memory/block_map.h"

#include <bit>

namespace tessera::fence {
namespace {

unsigned ShiftOf(std::uint64_t places) {
  return static_cast<unsigned>(std::countr_zero(places)) + 4;  // 16 bytes each
}

}  // namespace

BlockMap::Word* BlockMap::AddChunk(std::uint64_t address) {
  static_assert(sizeof(Chunk) == 16);
  if (filled_ >= mask_ / 2 && !Grow()) return nullptr;
  auto* words = static_cast<Word*>(arena_.Take(kChunkShift + 3));
  if (words == nullptr) return nullptr;
  const std::uint64_t chunk = ChunkOf(address);
  auto at = static_cast<std::uint32_t>(Mix(chunk) >> 32) & mask_;
  while (chunks_[at].key != 0) at = (at + 1) & mask_;
  chunks_[at] = {chunk + 1, words};
  ++filled_;
  return &words[address >> kBlockShift & kWordMask];
}

bool BlockMap::Grow() {
  const std::uint32_t capacity = mask_ == 0 ? kFirstChunks : (mask_ + 1) * 2;
  auto* chunks = static_cast<Chunk*>(arena_.Take(ShiftOf(capacity)));
  if (chunks == nullptr) return false;
  const std::uint32_t mask = capacity - 1;
  for (std::uint64_t i = 0; mask_ != 0 && i <= mask_; ++i) {
    if (chunks_[i].key == 0) continue;
    auto at = static_cast<std::uint32_t>(Mix(chunks_[i].key - 1) >> 32) & mask;
    while (chunks[at].key != 0) at = (at + 1) & mask;
    chunks[at] = chunks_[i];
  }
  if (mask_ != 0) arena_.Give(chunks_, ShiftOf(std::uint64_t{mask_} + 1));
  chunks_ = chunks;
  mask_ = mask;
  return true;
}

BlockRecord* BlockMap::NewRecord() {
  return static_cast<BlockRecord*>(arena_.Take(Arena::kLeastShift));
}

}  // namespace tessera::fence
