// The driver's own memory limits per cgroup (driver R615 and later).
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "sim/state/own.h"

namespace tessera::sim {
namespace {

MemoryLimit* Find(NodeState& node, std::string_view cgroup) {
  for (MemoryLimit& limit : node.limits) {
    if (limit.state.load(std::memory_order_acquire) == 1 &&
        Text(limit.cgroup, sizeof limit.cgroup) == cgroup) {
      return &limit;
    }
  }
  return nullptr;
}

MemoryLimit* Add(NodeState& node, std::string_view cgroup) {
  for (MemoryLimit& limit : node.limits) {
    std::uint32_t free = 0;
    if (!limit.state.compare_exchange_strong(free, 2)) continue;
    memset(limit.cgroup, 0, sizeof limit.cgroup);
    memcpy(limit.cgroup, cgroup.data(), cgroup.size());
    for (int card = 0; card < kMaxCards; ++card) {
      limit.soft[card].store(0);
      limit.hard[card].store(kNoMemoryLimit);
    }
    limit.state.store(1, std::memory_order_release);
    node.limit_count.fetch_add(1, std::memory_order_release);
    return &limit;
  }
  return nullptr;
}

bool Empty(const MemoryLimit& limit) {
  for (int card = 0; card < kMaxCards; ++card) {
    if (limit.soft[card].load() != 0 || limit.hard[card].load() != kNoMemoryLimit) return false;
  }
  return true;
}

std::uint64_t HeldIn(const NodeState& node, int card, std::string_view cgroup) {
  const std::uint64_t high =
      std::min<std::uint64_t>(node.slots_high.load(std::memory_order_acquire), kMaxProcesses);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < high; ++i) {
    const ProcessSlot& slot = node.processes[i];
    if (slot.owner.load(std::memory_order_acquire) == 0) continue;
    if (InCgroup(Text(slot.cgroup, sizeof slot.cgroup), cgroup)) sum += HeldBytes(slot.cards[card]);
  }
  return sum;
}

}  // namespace

std::string_view Text(const char* text, std::size_t size) { return {text, strnlen(text, size)}; }

int ReadSmallFile(const char* path, char* buffer, int size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  int length = 0;
  while (length < size - 1) {
    const ssize_t got = read(fd, buffer + length, static_cast<std::size_t>(size - 1 - length));
    if (got <= 0) break;
    length += static_cast<int>(got);
  }
  close(fd);
  buffer[length] = 0;
  return length;
}

void ReadOwnCgroup(char* buffer, std::size_t size) {
  char text[4096];
  if (ReadSmallFile("/proc/self/cgroup", text, sizeof text) <= 0) return;
  std::string_view unified, memory;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line(rest.data(), std::min(rest.find('\n'), rest.size()));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t first = line.find(':');
    if (first == line.npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers(line.data() + first + 1, second - first - 1);
    std::string_view of_line = line;
    of_line.remove_prefix(second + 1);
    if (controllers.empty()) unified = of_line;
    if (controllers == "memory") memory = of_line;
  }
  // On a hybrid host the unified hierarchy is there but nobody is in it.
  const std::string_view path = memory.empty() || unified.size() > 1 ? unified : memory;
  const std::size_t length = std::min(path.size(), size - 1);
  memcpy(buffer, path.data(), length);
  memset(buffer + length, 0, size - length);
}

bool InCgroup(std::string_view path, std::string_view cgroup) {
  if (cgroup == "/") return true;
  return path.starts_with(cgroup) && (path.size() == cgroup.size() || path[cgroup.size()] == '/');
}

bool OverMemoryLimit(NodeState& node, int card, int slot) {
  const std::string_view path =
      Text(node.processes[slot].cgroup, sizeof node.processes[slot].cgroup);
  for (const MemoryLimit& limit : node.limits) {
    if (limit.state.load(std::memory_order_acquire) != 1) continue;
    const std::string_view cgroup = Text(limit.cgroup, sizeof limit.cgroup);
    const std::uint64_t hard = limit.hard[card].load(std::memory_order_acquire);
    if (hard != kNoMemoryLimit && InCgroup(path, cgroup) && HeldIn(node, card, cgroup) > hard)
      return true;
  }
  return false;
}

bool SetMemoryLimit(int card, std::string_view cgroup, std::uint64_t soft, std::uint64_t hard) {
  NodeState* node = AttachNode();
  if (node == nullptr || card < 0 || card >= static_cast<int>(node->card_count)) return false;
  if (cgroup.empty() || cgroup.size() >= sizeof(MemoryLimit::cgroup)) return false;
  MemoryLimit* limit = Find(*node, cgroup);
  const bool clear = soft == 0 && hard == kNoMemoryLimit;
  if (limit == nullptr && clear) return true;
  if (limit == nullptr) limit = Add(*node, cgroup);
  if (limit == nullptr) return false;
  limit->soft[card].store(soft, std::memory_order_release);
  limit->hard[card].store(hard, std::memory_order_release);
  std::uint32_t in_force = 1;
  if (clear && Empty(*limit) && limit->state.compare_exchange_strong(in_force, 0)) {
    node->limit_count.fetch_sub(1, std::memory_order_release);
  }
  return true;
}

MemoryLimitView GetMemoryLimit(int card, std::string_view cgroup) {
  MemoryLimitView view{0, kNoMemoryLimit, 0};
  NodeState* node = AttachNode();
  if (node == nullptr || card < 0 || card >= static_cast<int>(node->card_count)) return view;
  SweepDeadProcesses();
  if (const MemoryLimit* limit = Find(*node, cgroup)) {
    view.soft = limit->soft[card].load(std::memory_order_acquire);
    view.hard = limit->hard[card].load(std::memory_order_acquire);
  }
  view.used = HeldIn(*node, card, cgroup);
  return view;
}

}  // namespace tessera::sim
