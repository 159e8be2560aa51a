// What one shard of the table knows of each block of 2 MiB: address -> a word of 8 bytes.
//
// Words stand in chunks of 64 neighbouring blocks; a chunk stays for the life of the process. A
// word is nothing (0), one allocation that begins where the block begins and leaves no count
// (kAlone and the packed allocation), or the address of a BlockRecord.
//
// Thread safety: none; its shard has a lock. Errors: nullptr when there is no memory.
#pragma once

#include <cstdint>

#include "memory/arena.h"
#include "memory/block_record.h"

namespace tessera::fence {

class BlockMap {
 public:
  using Word = std::uint64_t;
  static constexpr Word kAlone = std::uint64_t{1} << 63;
  static constexpr unsigned kChunkShift = 6;  // blocks of a chunk: 128 MiB

  static std::uint64_t Mix(std::uint64_t chunk) { return chunk * 0x9e3779b97f4a7c15u; }
  static std::uint64_t ChunkOf(std::uint64_t address) {
    return address >> (kBlockShift + kChunkShift);
  }
  static BlockRecord* RecordOf(Word word) {
    return word == 0 || (word & kAlone) != 0 ? nullptr : reinterpret_cast<BlockRecord*>(word);
  }

  // The word of the block that `address` lies in; nullptr if nothing in its chunk was ever known.
  Word* Find(std::uint64_t address);
  // The same, made if need be.
  Word* Make(std::uint64_t address) {
    Word* word = Find(address);
    return word != nullptr ? word : AddChunk(address);
  }
  // Makes the word a record that says the same.
  BlockRecord* Promote(Word* word) {
    BlockRecord* record = RecordOf(*word);
    return record != nullptr ? record : MakeRecord(word);
  }
  // Gives a record back that says nothing any more.
  void Settle(Word* word, BlockRecord* record) {
    if (record->Unused()) GiveRecord(word, record);
  }
  // Calls visit(block, word) for each block that is known, until it returns false.
  template <typename Visit>
  bool ForEach(Visit&& visit);
  Arena& arena() { return arena_; }
  // Forgets everything and gives all memory back.
  void Reset() {
    arena_.Reset();
    *this = BlockMap();
  }

 private:
  static constexpr std::uint64_t kWordMask = (std::uint64_t{1} << kChunkShift) - 1;
  static constexpr std::uint32_t kFirstChunks = 8;
  struct Chunk {
    std::uint64_t key;  // number of the chunk + 1; 0 = none
    Word* words;        // 1 << kChunkShift of them
  };

  Word* AddChunk(std::uint64_t address);
  bool Grow();
  BlockRecord* MakeRecord(Word* word);
  void GiveRecord(Word* word, BlockRecord* record);
  BlockRecord* NewRecord();

  std::uint32_t mask_ = 0;  // places for chunks - 1; 0 = no table yet
  std::uint32_t filled_ = 0;
  Chunk* chunks_ = nullptr;       // open-addressed
  BlockRecord* spare_ = nullptr;  // that say nothing any more
  Arena arena_;
};

// Inlined where every nanosecond counts: it runs in every allocation and free.
[[gnu::always_inline]] inline BlockMap::Word* BlockMap::Find(std::uint64_t address) {
  if (mask_ == 0) return nullptr;
  const std::uint64_t chunk = ChunkOf(address);
  for (auto i = static_cast<std::uint32_t>(Mix(chunk) >> 32) & mask_;; i = (i + 1) & mask_) {
    if (chunks_[i].key == chunk + 1) return &chunks_[i].words[address >> kBlockShift & kWordMask];
    if (chunks_[i].key == 0) return nullptr;
  }
}

inline BlockRecord* BlockMap::MakeRecord(Word* word) {
  BlockRecord* record = spare_;
  if (record == nullptr) [[unlikely]] {
    record = NewRecord();
    if (record == nullptr) return nullptr;
  } else {
    spare_ = record->NextSpare();
  }
  // One entry of any size has room in the record itself: this cannot fail.
  if (*word != 0) record->Add(PlaceInBlock(0), *word & ~kAlone, arena_);
  *word = reinterpret_cast<Word>(record);
  return record;
}

inline void BlockMap::GiveRecord(Word* word, BlockRecord* record) {
  record->Clear(arena_);
  record->SetNextSpare(spare_);
  spare_ = record;
  *word = 0;
}

template <typename Visit>
bool BlockMap::ForEach(Visit&& visit) {
  for (std::uint64_t c = 0; mask_ != 0 && c <= mask_; ++c) {
    const Chunk& chunk = chunks_[c];
    if (chunk.key == 0) continue;
    for (std::uint64_t b = 0; b <= kWordMask; ++b) {
      const std::uint64_t block = (chunk.key - 1) << kChunkShift | b;
      if (chunk.words[b] != 0 && !visit(block, &chunk.words[b])) return false;
    }
  }
  return true;
}

}  // namespace tessera::fence
