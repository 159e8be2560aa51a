// The file behind the node: made once, mapped by everybody.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/state/own.h"

namespace tessera::sim {
namespace {

std::atomic<NodeState*> attached{nullptr};

std::uint64_t PidNamespace() {
  struct stat info;
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// Everything else of a new file is zero, which is a valid empty node.
void Describe(NodeState& node, const NodeDescription& description) {
  node.magic = kNodeMagic;
  node.layout = kNodeLayout;
  node.bytes = sizeof(NodeState);
  node.driver_version_cuda = description.driver_version_cuda;
  memcpy(node.driver_version, description.driver_version, sizeof node.driver_version);
  node.seed = description.seed;
  node.random_state.store(description.seed, std::memory_order_relaxed);
  node.card_count = description.card_count;
  node.memory_limits_supported = description.memory_limits_supported;
  node.pid_namespace = PidNamespace();
  node.costs = description.costs;
  memcpy(node.specs, description.specs, sizeof node.specs);
}

int WriteNode(int fd, const NodeDescription& description) {
  if (ftruncate(fd, sizeof(NodeState)) != 0 || fchmod(fd, 0666) != 0) return errno;
  void* memory = mmap(nullptr, sizeof(NodeState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno;
  Describe(*static_cast<NodeState*>(memory), description);
  munmap(memory, sizeof(NodeState));
  return 0;
}

}  // namespace

int CreateNode(const char* path, const NodeDescription& description) {
  char draft[4096];
  if (snprintf(draft, sizeof draft, "%s.XXXXXX", path) >= static_cast<int>(sizeof draft))
    return ENAMETOOLONG;
  const int fd = mkostemp(draft, O_CLOEXEC);
  if (fd < 0) return errno;
  int error = WriteNode(fd, description);
  if (error == 0 && link(draft, path) != 0) error = errno;
  unlink(draft);
  close(fd);
  return error;
}

NodeState* MapNode(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat info;
  void* memory = MAP_FAILED;
  if (fstat(fd, &info) == 0) {
    if (info.st_size == static_cast<off_t>(sizeof(NodeState))) {
      memory = mmap(nullptr, sizeof(NodeState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    } else {
      errno = EPROTO;
    }
  }
  const int error = errno;
  close(fd);
  errno = error;
  if (memory == MAP_FAILED) return nullptr;
  auto* node = static_cast<NodeState*>(memory);
  if (node->magic == kNodeMagic && node->layout == kNodeLayout &&
      node->bytes == sizeof(NodeState) && node->card_count <= kMaxCards) {
    return node;
  }
  munmap(memory, sizeof(NodeState));
  errno = EPROTO;
  return nullptr;
}

NodeState* AttachNode() {
  NodeState* node = attached.load(std::memory_order_acquire);
  if (node != nullptr) return node;
  const char* path = getenv(kEnvNodePath);
  node = MapNode(path != nullptr && path[0] != 0 ? path : kDefaultNodePath);
  if (node == nullptr) return nullptr;
  NodeState* first = nullptr;
  if (attached.compare_exchange_strong(first, node, std::memory_order_acq_rel)) return node;
  munmap(node, sizeof(NodeState));
  return first;
}

void UseNode(NodeState* node) {
  ForgetProcessAfterFork();
  attached.store(node, std::memory_order_release);
}

}  // namespace tessera::sim
