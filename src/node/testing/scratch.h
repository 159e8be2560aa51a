// A state directory of its own for one test, a node of two cards, and helpers to play other
// processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "node/store.h"

namespace tessera::node {

class ScratchTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "nodeXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    chmod(folder_.c_str(), 0755);
    state_ = folder_ + "/state";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Store Open() {
    Result<StateRoot> root = FindStateRoot(state_);
    EXPECT_TRUE(root) << root.error().message;
    return Store(*root);
  }

  static model::Node TwoCards() {
    model::Node node;
    for (int i = 0; i < 2; ++i) {
      model::Card card;
      card.index = i;
      card.uuid.bytes[15] = static_cast<std::uint8_t>(i + 1);
      card.name = "Test card";
      card.memory_bytes = 10'000 * model::kMib;
      node.cards.push_back(card);
    }
    return node;
  }

  static NewSlice Asking(std::uint64_t mib, const std::string& name = "") {
    NewSlice wanted;
    wanted.request.memory_bytes = mib * model::kMib;
    wanted.request.name = name;
    wanted.command = "/bin/sleep 60";
    wanted.program = "/bin/sleep";
    return wanted;
  }

  // Runs `work` in a child; answers its exit code, or 1000 + the signal that killed it.
  static int InChild(const std::function<int()>& work) {
    pid_t child = fork();
    if (child == 0) _exit(work());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(state_ + "/slices"))
      names.push_back(entry.path().filename());
    return names;
  }

  std::string folder_, state_;
};

inline constexpr int kSkipped =
    77;  // a child's answer when the machine does not allow what it needs

}  // namespace tessera::node
