// A /proc that a test writes down.
#pragma once

#include <map>

#include "base/clock.h"
#include "watch/processes.h"

namespace tessera::watch::testing {

class FakeProcesses : public Processes {
 public:
  std::vector<ProcessEntry> All() override { return all; }
  std::string CommandLine(const ProcessEntry& process) override {
    const auto found = command_lines.find(process.identity.pid);
    return found == command_lines.end() ? process.command : found->second;
  }
  std::optional<Mapped> Maps(pid_t pid, const FileIdentity&) override {
    const auto found = maps.find(pid);
    if (maps_clock != nullptr) maps_clock->SleepNs(maps_take_ns);
    if (found == maps.end()) return std::nullopt;
    return found->second;
  }
  std::optional<uid_t> UserOf(pid_t pid) override {
    const auto found = users.find(pid);
    if (found == users.end()) return std::nullopt;
    return found->second;
  }
  bool InUserNamespace(pid_t pid, std::uint64_t inode) override {
    const auto found = user_namespaces.find(pid);
    return found != user_namespaces.end() && found->second == inode;
  }
  node::SeenPolicy PolicyOf(pid_t pid) override {
    const auto found = policies.find(pid);
    if (found == policies.end()) return {};
    return {true, found->second, {found->second}};
  }

  std::vector<ProcessEntry> all;
  std::map<pid_t, std::string> command_lines;
  std::map<pid_t, Mapped> maps;
  std::map<pid_t, uid_t> users;
  std::map<pid_t, node::Place> policies;  // what stands at /run/tessera/policy
  std::map<pid_t, std::uint64_t> user_namespaces;
  base::FakeClock* maps_clock = nullptr;  // goes on by so much for each Maps
  std::int64_t maps_take_ns = 0;
  std::uint64_t own_pid_namespace = 4026531836;
};

}  // namespace tessera::watch::testing
