// The program's environment: read, and for a moment changed.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "os/os.h"

extern "C" char** environ;

namespace tessera::fence::os {
namespace {

// More than the kernel lets an exec hand over.
constexpr std::size_t kMaxVariables = std::size_t{1} << 20;
constexpr std::size_t kSpare = 64;

// The array that stands in where a variable has to be added. It is never given back: another thread
// may be walking through it.
char** own_array = nullptr;
std::size_t own_capacity = 0;

std::size_t CountEntries(char** array) {
  std::size_t count = 0;
  while (count < kMaxVariables && std::atomic_ref(array[count]).load() != nullptr) ++count;
  return count;
}

char** EntryOf(char** array, std::string_view name) {
  for (char** at = array; at != nullptr && *at != nullptr; ++at) {
    if (std::strncmp(*at, name.data(), name.size()) == 0 && (*at)[name.size()] == '=') return at;
  }
  return nullptr;
}

char** EntryThatIs(char** array, const char* text) {
  for (char** at = array; at != nullptr && *at != nullptr; ++at) {
    if (*at == text) return at;
  }
  return nullptr;
}

bool MakeRoom(std::size_t entries) {
  if (entries <= own_capacity) return true;
  auto** array = static_cast<char**>(MapPrivate((entries + kSpare) * sizeof(char*)));
  if (array == nullptr) return false;
  own_array = array;
  own_capacity = entries + kSpare;
  return true;
}

void Put(char** place, char* text) { std::atomic_ref(*place).store(text); }

// `text` becomes the last entry. What other threads set meanwhile goes with it.
bool Append(char* text) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    char** former = std::atomic_ref(environ).load();
    const std::size_t count = former == nullptr ? 0 : CountEntries(former);
    if (count == kMaxVariables) return false;
    if (former == own_array && former != nullptr && count + 2 <= own_capacity) {
      Put(&former[count + 1], nullptr);
      Put(&former[count], text);
      return true;
    }
    char** full = former == own_array ? former : nullptr;
    if (full != nullptr) own_capacity = 0;  // a larger array is needed than the one in use
    if (!MakeRoom(count + 2)) return false;
    for (std::size_t i = 0; i < count; ++i) Put(&own_array[i], former[i]);
    Put(&own_array[count + 1], nullptr);
    Put(&own_array[count], text);
    if (!std::atomic_ref(environ).compare_exchange_strong(former, own_array)) continue;
    // An entry that was exchanged in place while it was copied.
    for (std::size_t i = 0; i < count; ++i) Put(&own_array[i], former[i]);
    return true;
  }
  return false;
}

}  // namespace

const char* Environment(const char* name) { return secure_getenv(name); }

const char* const* EnvironmentEntries() {
  static constexpr const char* kNone[] = {nullptr};
  return environ != nullptr ? environ : kNone;
}

EnvironmentSwap::EnvironmentSwap(std::string_view name, char* assignment)
    : assignment_(assignment) {
  if (char** at = EntryOf(environ, name); at != nullptr) {
    former_assignment_ = *at;
    Put(at, assignment);
    active_ = true;
  } else {
    active_ = Append(assignment);
  }
}

EnvironmentSwap::~EnvironmentSwap() {
  if (assignment_ == nullptr) return;
  char** at = EntryThatIs(environ, assignment_);
  if (at == nullptr)
    return;  // the program has set or removed the variable meanwhile: its word stands
  if (former_assignment_ != nullptr) {
    Put(at, former_assignment_);
    return;
  }
  for (; *at != nullptr; ++at) Put(at, at[1]);
}

}  // namespace tessera::fence::os
