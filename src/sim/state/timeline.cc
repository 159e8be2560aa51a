#include "sim/state/timeline.h"

#include <algorithm>

namespace tessera::sim {
namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

std::uint64_t Window(std::uint64_t when) { return when / kUtilWindowNs; }

struct Activity {
  int active = 0;
  std::uint64_t least = kNever;       // backlog
  std::uint64_t next_ready = kNever;  // when one more becomes active
};

Activity Look(const Timeline& t) {
  Activity found;
  for (std::uint64_t i = 0; i < t.count; ++i) {
    const TimelineEntry& entry = t.entries[i];
    if (entry.backlog_ns == 0) continue;
    if (entry.ready_ns > t.advanced_ns) {
      found.next_ready = std::min(found.next_ready, entry.ready_ns);
    } else {
      ++found.active;
      found.least = std::min(found.least, entry.backlog_ns);
    }
  }
  return found;
}

bool Active(const Timeline& t, const TimelineEntry& entry) {
  return entry.backlog_ns > 0 && entry.ready_ns <= t.advanced_ns;
}

// Who has the engine at the end of a window: the context whose slice it is.
std::uint64_t OwnerNow(const Timeline& t, std::uint64_t slice_ns) {
  const Activity now = Look(t);
  if (now.active == 0) return 0;
  std::uint64_t turn = slice_ns == 0 ? 0 : (t.advanced_ns / slice_ns) % now.active;
  for (std::uint64_t i = 0; i < t.count; ++i) {
    if (Active(t, t.entries[i]) && turn-- == 0) return t.entries[i].owner;
  }
  return 0;
}

void EndWindow(Timeline& t, SliceCosts costs, TimelineLog* log) {
  if (log != nullptr) {
    // A window that was busy but ends idle belongs to whoever was served last in it.
    std::uint64_t owner = OwnerNow(t, costs.slice_ns);
    if (owner == 0 && t.window_busy_ns > 0) owner = t.last_owner;
    log->windows[log->window_count++ % kUtilSamples] = {Window(t.advanced_ns) - 1, t.window_busy_ns,
                                                        owner};
  }
  t.window_busy_ns = 0;
}

void Serve(Timeline& t, std::uint64_t share, TimelineLog* log) {
  for (std::uint64_t i = 0; i < t.count; ++i) {
    TimelineEntry& entry = t.entries[i];
    if (!Active(t, entry)) continue;
    const std::uint64_t served = std::min(share, entry.backlog_ns);
    entry.backlog_ns -= served;
    t.last_owner = entry.owner;
    if (log != nullptr) log->parts[i].ns += served;
  }
}

void Compact(Timeline& t) {
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < t.count; ++i) {
    if (t.entries[i].backlog_ns > 0 || t.entries[i].until_ns > t.advanced_ns)
      t.entries[kept++] = t.entries[i];
  }
  t.count = kept;
}

// Engine time that `n` contexts taking turns need for `work` of each.
std::uint64_t Elapsed(std::uint64_t work, int n, SliceCosts costs) {
  if (n <= 1 || costs.slice_ns == 0) return work * std::max(n, 1);
  const unsigned __int128 all = static_cast<unsigned __int128>(work) * n;
  return static_cast<std::uint64_t>(all + all * costs.switch_ns / costs.slice_ns);
}

std::uint64_t Share(std::uint64_t elapsed, int n, SliceCosts costs) {
  if (n <= 1 || costs.slice_ns == 0) return elapsed / std::max(n, 1);
  const unsigned __int128 useful = static_cast<unsigned __int128>(elapsed) * costs.slice_ns;
  return static_cast<std::uint64_t>(useful / (costs.slice_ns + costs.switch_ns) / n);
}

// When `work` of one process is done that starts to take turns now with what the others have.
std::uint64_t RoundRobinEnd(const Timeline& t, SliceCosts costs, const TimelineEntry* self,
                            std::uint64_t work) {
  const std::uint64_t slice = std::max<std::uint64_t>(costs.slice_ns, 1);
  const std::uint64_t rounds = (work + slice - 1) / slice;
  std::uint64_t total = work;
  std::uint64_t turns = 0;
  for (std::uint64_t i = 0; i < t.count; ++i) {
    const TimelineEntry& other = t.entries[i];
    if (&other == self || !Active(t, other)) continue;
    std::uint64_t before = rounds * slice;
    if (other.owner == t.last_owner) before -= t.advanced_ns % slice;  // its slice is under way
    const std::uint64_t taken = std::min(other.backlog_ns, before);
    total += taken;
    turns += (taken + slice - 1) / slice;
  }
  if (turns > 0) total += (turns + rounds) * costs.switch_ns;
  return t.advanced_ns + total;
}

TimelineEntry* Find(Timeline& t, std::uint64_t owner) {
  for (std::uint64_t i = 0; i < t.count; ++i) {
    if (t.entries[i].owner == owner) return &t.entries[i];
  }
  return nullptr;
}

}  // namespace

void Advance(Timeline& t, SliceCosts costs, std::uint64_t now, TimelineLog* log) {
  if (log != nullptr) {
    log->part_count = static_cast<int>(t.count);
    for (std::uint64_t i = 0; i < t.count; ++i)
      log->parts[i] = {t.entries[i].owner, t.entries[i].process, 0};
  }
  while (t.advanced_ns < now) {
    const std::uint64_t window_end = (Window(t.advanced_ns) + 1) * kUtilWindowNs;
    const Activity found = Look(t);
    if (found.active == 0 && found.next_ready > now &&
        Window(now) > Window(t.advanced_ns) + kUtilSamples) {
      // Idle for longer than anybody can ask about.
      t.window_busy_ns = 0;
      t.advanced_ns = (Window(now) - kUtilSamples) * kUtilWindowNs;
      continue;
    }
    std::uint64_t end = std::min({now, window_end, found.next_ready});
    if (found.active > 0) {
      const std::uint64_t needed = Elapsed(found.least, found.active, costs);
      std::uint64_t share = found.least;
      if (end - t.advanced_ns < needed) {
        share = Share(end - t.advanced_ns, found.active, costs);
        // Too short a time to divide: left for the next look, unless something else happens then.
        if (share == 0 && end == now && end != window_end) break;
      } else {
        end = t.advanced_ns + needed;
      }
      Serve(t, share, log);
      t.busy_ns_total += end - t.advanced_ns;
      t.window_busy_ns += end - t.advanced_ns;
    }
    t.advanced_ns = end;
    if (end == window_end) EndWindow(t, costs, log);
  }
  Compact(t);
}

std::uint64_t Submit(Timeline& t, SliceCosts costs, std::uint64_t owner, std::uint64_t process,
                     std::uint64_t earliest, std::uint64_t duration) {
  TimelineEntry* self = Find(t, owner);
  if (self == nullptr) {
    if (t.count < kMaxActive) {
      self = &t.entries[t.count++];
      *self = {owner, process, 0, 0, 0};
    } else {
      self = &t.entries[kMaxActive - 1];
      self->owner = 0;  // shared by all that found no place: served, not told apart
    }
  }
  std::uint64_t work = duration;
  const bool resumes = self->backlog_ns == 0;
  if (resumes && t.last_owner != owner) {
    if (t.last_owner != 0) work += costs.switch_ns;
    if (Look(t).active == 0) t.last_owner = owner;
  }
  const std::uint64_t start = std::max(t.advanced_ns, earliest);
  if (resumes) self->ready_ns = start;

  std::uint64_t end = 0;
  if (start > std::max(t.advanced_ns, self->until_ns) && t.count > 1) {
    // It waits for something else first: what will the others have left by then?
    Timeline later = t;
    Advance(later, costs, start, nullptr);
    const TimelineEntry* then = Find(later, owner);
    end = RoundRobinEnd(later, costs, then, (then == nullptr ? 0 : then->backlog_ns) + work);
  } else {
    end = RoundRobinEnd(t, costs, self, self->backlog_ns + work);
  }
  end = std::max(end, std::max(start, self->until_ns) + work);
  self->backlog_ns += work;
  self->until_ns = end;
  return end;
}

void Drop(Timeline& t, std::uint64_t owner) {
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < t.count; ++i) {
    if (t.entries[i].owner != owner) t.entries[kept++] = t.entries[i];
  }
  t.count = kept;
}

}  // namespace tessera::sim
