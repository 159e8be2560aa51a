// The memory maps that one look at one slice reads: each once, and no more than its share of time.
//
// A tenant may make the maps of its processes long (65,530 mappings of a file with a long path are
// 16 MiB and take the kernel 0.1 s each): those that come after the budget count as "may not be
// seen". Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"
#include "watch/processes.h"

namespace tessera::watch {

inline constexpr std::int64_t kMapsBudgetNs = 400'000'000;

class MapsReader {
 public:
  MapsReader(Processes& processes, base::Clock& clock, const FileIdentity& ledger)
      : processes_(&processes), clock_(&clock), ledger_(ledger) {}

  std::optional<Mapped> Read(pid_t pid) {
    const auto [known, is_new] = read_.try_emplace(pid);
    if (!is_new) return known->second;
    if (spent_ns_ >= kMapsBudgetNs) {
      ++left_out_;
      return std::nullopt;
    }
    const std::int64_t begun = clock_->NowNs();
    known->second = processes_->Maps(pid, ledger_);
    spent_ns_ += clock_->NowNs() - begun;
    return known->second;
  }

  std::size_t left_out() const { return left_out_; }

 private:
  Processes* processes_;
  base::Clock* clock_;
  FileIdentity ledger_;
  std::map<pid_t, std::optional<Mapped>> read_;
  std::int64_t spent_ns_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace tessera::watch
