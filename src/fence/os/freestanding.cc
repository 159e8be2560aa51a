// What the compiler calls by itself, for the library only: each of these taken from libc would be
// one more symbol that the dynamic linker looks up in every process that starts.
#include <cstddef>
#include <cstdint>

namespace {

using Word = std::uint64_t;

Word LoadWord(const unsigned char* at) {
  Word word;
  __builtin_memcpy(&word, at, sizeof word);
  return word;
}
void StoreWord(unsigned char* at, Word word) { __builtin_memcpy(at, &word, sizeof word); }

}  // namespace

extern "C" {

void* memcpy(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  for (; bytes >= sizeof(Word); bytes -= sizeof(Word), out += sizeof(Word), in += sizeof(Word)) {
    StoreWord(out, LoadWord(in));
  }
  while (bytes-- > 0) *out++ = *in++;
  return to;
}

void* memmove(void* to, const void* from, std::size_t bytes) {
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  if (reinterpret_cast<std::uintptr_t>(out) - reinterpret_cast<std::uintptr_t>(in) >= bytes) {
    return memcpy(to, from, bytes);
  }
  while (bytes-- > 0) out[bytes] = in[bytes];
  return to;
}

void* memset(void* to, int byte, std::size_t bytes) {
  auto* out = static_cast<unsigned char*>(to);
  const Word word = static_cast<unsigned char>(byte) * Word{0x0101010101010101};
  for (; bytes >= sizeof(Word); bytes -= sizeof(Word), out += sizeof(Word)) StoreWord(out, word);
  while (bytes-- > 0) *out++ = static_cast<unsigned char>(byte);
  return to;
}

int memcmp(const void* a, const void* b, std::size_t bytes) {
  const auto* x = static_cast<const unsigned char*>(a);
  const auto* y = static_cast<const unsigned char*>(b);
  for (; bytes > 0; --bytes, ++x, ++y) {
    if (*x != *y) return *x < *y ? -1 : 1;
  }
  return 0;
}

std::size_t strlen(const char* text) {
  std::size_t length = 0;
  while (text[length] != '\0') ++length;
  return length;
}

int strcmp(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return static_cast<unsigned char>(*a) - static_cast<unsigned char>(*b);
}

int strncmp(const char* a, const char* b, std::size_t bytes) {
  for (; bytes > 0 && *a != '\0' && *a == *b; --bytes, ++a, ++b) {
  }
  return bytes == 0 ? 0 : static_cast<unsigned char>(*a) - static_cast<unsigned char>(*b);
}

[[noreturn]] void __stack_chk_fail() { __builtin_trap(); }

}  // extern "C"
