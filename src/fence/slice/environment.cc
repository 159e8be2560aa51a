#include "slice/environment.h"

#include <cerrno>
#include <cstring>

#include "contract/hami_limit.h"
#include "contract/names.h"
#include "os/os.h"
#include "slice/text.h"

namespace tessera::fence {
namespace {

using contract::LimitValue;

contract::PolicyFile g_policy;  // stands in for the file; written once, under the attach lock

struct Variable {
  char name[64];
  const char* value;
};

Variable Indexed(const char* base, std::uint64_t index) {
  Variable v;
  Text(v.name, sizeof v.name) << std::string_view(base) << "_" << index;
  v.value = os::Environment(v.name);
  return v;
}

Variable Plain(const char* base) {
  Variable v;
  Text(v.name, sizeof v.name) << std::string_view(base);
  v.value = os::Environment(v.name);
  return v;
}

// False after writing slice.problem.
bool Read(const Variable& variable, LimitValue (*parse)(std::string_view), const char* legal,
          Slice& slice, std::uint64_t* value) {
  if (variable.value == nullptr) return true;
  const LimitValue parsed = parse(variable.value);
  if (parsed.error == nullptr) {
    *value = parsed.value;
    return true;
  }
  Text(slice.problem, sizeof slice.problem) << (Text::Quoted{variable.name, variable.value}) << ": "
                                            << parsed.error << ", legal is " << legal;
  return false;
}

bool IsCardIndex(std::string_view text) {
  if (text.empty() || text.size() > 2 || (text.size() == 2 && text[0] == '0')) return false;
  std::uint32_t index = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    index = index * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return index < contract::kMaxCards;
}

constexpr std::size_t kLongestCache = 480;

// A limit of a card that cannot be would be no limit at all. False after writing slice.problem.
bool NamesAreLegal(Slice& slice) {
  for (const char* const* entry = os::EnvironmentEntries(); *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    for (const std::string_view base : {std::string_view(contract::kEnvHamiMemoryLimit),
                                        std::string_view(contract::kEnvHamiCoreLimit)}) {
      if (!text.starts_with(base)) continue;
      std::string_view index = text;
      index.remove_prefix(base.size());
      if (index.empty() || index[0] != '_') continue;
      std::size_t end = 1;
      while (end < index.size() && index[end] != '=') ++end;
      if (end == index.size()) continue;
      std::string_view value = index;
      value.remove_prefix(end + 1);
      index = {index.data() + 1, end - 1};
      if (IsCardIndex(index)) continue;
      char name[256];
      Text(name, sizeof name) << base << "_" << index;
      // In a set-uid program the variables mean nothing.
      if (os::Environment(name) == nullptr) continue;
      Text(slice.problem, sizeof slice.problem)
          << (Text::Quoted{name, value}) << ": no card has that index, legal is " << base
          << "_<index>, index 0 to 15";
      return false;
    }
  }
  return true;
}

bool ReadChoices(Slice& slice) {
  const Variable priority = Plain(contract::kEnvHamiPriority);
  std::uint32_t level = static_cast<std::uint32_t>(contract::Priority::kLow);
  if (priority.value != nullptr) {
    const std::string_view text(priority.value);
    if (text != "0" && text != "1") {
      Text(slice.problem, sizeof slice.problem)
          << (Text::Quoted{priority.name, text}) << ", legal is 0 (high) or 1 (low)";
      return false;
    }
    level = text == "0" ? 0 : 1;
  }
  const Variable policy = Plain(contract::kEnvHamiCorePolicy);
  contract::CorePolicy chosen = contract::CorePolicy::kDefault;
  if (policy.value != nullptr) {
    const std::string_view text(policy.value);
    if (text == "force" || text == "FORCE") {
      chosen = contract::CorePolicy::kForce;
    } else if (text == "disable" || text == "DISABLE") {
      chosen = contract::CorePolicy::kDisable;
    } else if (text != "default" && text != "DEFAULT") {
      Text(slice.problem, sizeof slice.problem)
          << (Text::Quoted{policy.name, text}) << ", legal is default, force or disable";
      return false;
    }
  }
  g_policy.header.core_policy = static_cast<std::uint32_t>(chosen);
  for (contract::PolicyCard& card : g_policy.cards) card.priority = level;
  return true;
}

// What names the ledger file: shared by processes with the same limits of the same user.
std::uint64_t HashOfLimits() {
  std::uint64_t hash = 1469598103934665603u;  // FNV-1a over the limits
  for (const contract::PolicyCard& card : g_policy.cards) {
    for (const std::uint64_t word : {card.limit_bytes, std::uint64_t{card.compute_percent}}) {
      for (int shift = 0; shift < 64; shift += 8)
        hash = (hash ^ (word >> shift & 255)) * 1099511628211u;
    }
  }
  return hash;
}

// Where the ledger may be, best first. The names in /tmp are known beforehand, and who makes one
// first has it: there are several.
constexpr std::uint64_t kPlaces = 17;

void PlaceOfLedger(std::uint64_t place, std::uint64_t hash, char* path, std::size_t bytes) {
  Text text(path, bytes);
  if (place == 0) {
    (text << "/run/user/" << os::UserId() << "/tessera-ledger-").Hex(hash);
    return;
  }
  (text << "/tmp/.tessera-ledger-" << os::UserId() << "-").Hex(hash);
  if (place > 1) text << "." << place;
}

// A folder of the user's own, where nobody else puts anything.
bool HasUserFolder() {
  char path[64];
  Text(path, sizeof path) << "/run/user/" << os::UserId();
  const int folder = os::OpenFolder(path);
  if (folder < 0) return false;
  os::FileFacts facts;
  const bool own =
      os::Describe(folder, &facts) && facts.owner == os::UserId() && (facts.mode & 022) == 0;
  os::Close(folder);
  return own;
}

// Opens the ledger at `path`, or makes it under another name first so that nobody ever sees a
// half-written one.
int OpenOrCreate(const char* path) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const int existing = os::OpenNoFollow(path);
    if (existing != -ENOENT) return existing;
    char fresh[600];
    Text text(fresh, sizeof fresh);
    text << std::string_view(path) << "." << static_cast<std::uint64_t>(os::ThreadId()) << ".";
    text.Hex(os::ImageRandom() ^ os::MonotonicNs());
    if (text.full()) return -ENAMETOOLONG;
    const int created = os::CreateNew(fresh, sizeof(contract::LedgerFile));
    if (created < 0) return created;
    void* map = os::MapShared(created, sizeof(contract::LedgerFile), os::Access::kReadWrite);
    if (map != nullptr) {
      contract::InitLedger(*static_cast<contract::LedgerFile*>(map));
      os::Unmap(map, sizeof(contract::LedgerFile));
    }
    const int linked = map == nullptr ? -ENOMEM : os::Link(fresh, path);
    os::Remove(fresh);
    if (linked == 0) return created;
    os::Close(created);
    if (linked != -EEXIST) return linked;
  }
  return -EAGAIN;
}

enum class Missing { kFail, kCreate };

// 0, or a negative errno.
int MapLedger(const char* path, Missing missing, Slice& slice) {
  const int file = missing == Missing::kCreate ? OpenOrCreate(path) : os::OpenNoFollow(path);
  if (file < 0) return file;
  os::FileFacts facts;
  int result = 0;
  // A file that somebody else put there is somebody else's to change.
  if (!os::Describe(file, &facts) || !facts.regular || facts.owner != os::UserId() ||
      (facts.mode & 022) != 0) {
    result = -EPERM;
  } else if (facts.bytes < sizeof(contract::LedgerFile)) {
    result = -EINVAL;
  } else {
    void* map = os::MapShared(file, facts.bytes, os::Access::kReadWrite);
    if (map == nullptr) {
      result = -ENOMEM;
    } else if (contract::OpenLedger(map, facts.bytes, &slice.ledger).field != nullptr) {
      os::Unmap(map, facts.bytes);
      result = -EINVAL;
    }
  }
  RememberLedger(slice, path, file);
  os::Close(file);
  return result;
}

// One that stands comes before a better place, so that all processes meet: the one in the way may
// have gone meanwhile. 0, or the negative errno of the first name in /tmp, which is left in `path`.
int MapSharedLedger(char* path, std::size_t bytes, Slice& slice) {
  const std::uint64_t hash = HashOfLimits();
  int refusal = -ENOENT;
  for (const Missing missing : {Missing::kFail, Missing::kCreate}) {
    for (std::uint64_t place = HasUserFolder() ? 0 : 1; place < kPlaces; ++place) {
      PlaceOfLedger(place, hash, path, bytes);
      const int result = MapLedger(path, missing, slice);
      // What is this user's and damaged is not left for another: its processes may have it mapped.
      if (result == 0 || result == -EINVAL || result == -ENOMEM) return result;
      if (place == 1) refusal = result;
    }
  }
  PlaceOfLedger(1, hash, path, bytes);
  return refusal;
}

}  // namespace

Mode AttachEnvironment(Slice& slice) {
  bool any = false;
  std::uint64_t memory = contract::kMaxBytes, cores = 100;
  const Variable all_memory = Plain(contract::kEnvHamiMemoryLimit),
                 all_cores = Plain(contract::kEnvHamiCoreLimit);
  any = all_memory.value != nullptr || all_cores.value != nullptr;
  if (!NamesAreLegal(slice)) return Mode::kRefused;
  if (!Read(all_memory, contract::ParseMemoryLimit, contract::kLegalMemoryLimit, slice, &memory) ||
      !Read(all_cores, contract::ParseCoreLimit, contract::kLegalCoreLimit, slice, &cores)) {
    return Mode::kRefused;
  }
  for (std::uint32_t i = 0; i < contract::kMaxCards; ++i) {
    const Variable one_memory = Indexed(contract::kEnvHamiMemoryLimit, i);
    const Variable one_cores = Indexed(contract::kEnvHamiCoreLimit, i);
    any = any || one_memory.value != nullptr || one_cores.value != nullptr;
    std::uint64_t bytes = memory, percent = cores;
    if (!Read(one_memory, contract::ParseMemoryLimit, contract::kLegalMemoryLimit, slice, &bytes) ||
        !Read(one_cores, contract::ParseCoreLimit, contract::kLegalCoreLimit, slice, &percent)) {
      return Mode::kRefused;
    }
    contract::PolicyCard& card = g_policy.cards[i];
    card.limit_bytes = card.ceiling_bytes = bytes;
    card.compute_percent = static_cast<std::uint32_t>(percent);
  }
  if (!any) return Mode::kInert;
  if (!ReadChoices(slice)) return Mode::kRefused;

  contract::PolicyHeader& header = g_policy.header;
  header.magic = contract::kPolicyMagic;
  header.layout = contract::kPolicyLayout;
  header.file_bytes = sizeof g_policy;
  header.cards_offset = offsetof(contract::PolicyFile, cards);
  header.card_stride = sizeof(contract::PolicyCard);
  header.card_count = contract::kMaxCards;
  header.gates_offset = offsetof(contract::PolicyFile, gates);
  header.gate_stride = sizeof(contract::PolicyGate);
  slice.policy = contract::PolicyView(reinterpret_cast<const std::byte*>(&g_policy), header);

  char path[512];
  int result = -ENOENT;
  if (const Variable cache = Plain(contract::kEnvHamiSharedCache); cache.value != nullptr) {
    const std::string_view value(cache.value);
    if (value.empty() || value[0] != '/' || value.size() > kLongestCache) {
      Text(slice.problem, sizeof slice.problem)
          << (Text::Quoted{cache.name, value}) << ", legal is an absolute path of up to "
          << std::uint64_t{kLongestCache} << " bytes";
      return Mode::kRefused;
    }
    // It names where processes share their figures, not a limit: where this user cannot have a file
    // there, all of the user's processes meet elsewhere.
    (Text(path, sizeof path) << value << ".tessera-") << os::UserId();
    result = MapLedger(path, Missing::kCreate, slice);
  }
  if (result != 0) result = MapSharedLedger(path, sizeof path, slice);
  if (result == 0) {
    slice.from_environment = true;
    return Mode::kFenced;
  }
  Text(slice.problem, sizeof slice.problem)
      << std::string_view(path) << ", and " << kPlaces - 2
      << " more of that name: no ledger can be had there (errno "
      << static_cast<std::uint64_t>(-result)
      << "), legal is a file of this user that nobody else may write";
  return Mode::kRefused;
}

}  // namespace tessera::fence
