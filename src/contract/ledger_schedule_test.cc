// Every schedule of a few processes over the ledger, with one of them killed between any two steps.
//
// Actors are fibers that give way at each Step::At(). A depth-first search replays all choices of
// "who runs next" and "is the victim killed now", with a bound on preemptions where three actors
// would be too many. After every step the model's truth (what the living were granted) is compared
// with the books; at the end the books must be exact.
#include <gtest/gtest.h>
#include <ucontext.h>

#include <functional>
#include <vector>

#include "contract/testing/small_ledger.h"

namespace tessera::contract {
namespace {

using testing::SmallLedger;

constexpr std::uint64_t kLimit = 10;

class Explorer {
 public:
  int Choose(int options) {
    if (at_ == path_.size()) path_.push_back({0, options});
    return path_[at_++].choice;
  }
  bool Next() {
    while (!path_.empty() && path_.back().choice + 1 == path_.back().options) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().choice;
    at_ = 0;
    return true;
  }

 private:
  struct Branch {
    int choice, options;
  };
  std::vector<Branch> path_;
  std::size_t at_ = 0;
};

struct Actor {
  std::uint64_t owner = 0;
  std::function<void()> body;
  bool killable = false;
  bool done = false, dead = false;
  std::uint64_t granted = 0;
  ucontext_t context;
};

constexpr std::size_t kStackBytes = 64 << 10;
char g_stacks[3][kStackBytes];

struct World;
World* g_world = nullptr;

struct World {
  SmallLedger ledger{4};
  std::vector<Actor> actors;
  ucontext_t scheduler;
  int current = -1;

  bool IsDead(std::uint64_t owner) const {
    for (const Actor& a : actors) {
      if (SameProcess(a.owner, owner)) return a.dead;
    }
    return true;
  }
};

struct Yield {
  static void At() { swapcontext(&g_world->actors[g_world->current].context, &g_world->scheduler); }
};

auto DeadInWorld() {
  return [](const LedgerSlot&, std::uint64_t owner) { return g_world->IsDead(owner); };
}

void RunActor(int i) {
  g_world->actors[i].body();
  g_world->actors[i].done = true;
}

void CheckAlways(const World& w) {
  std::uint64_t granted = 0;
  for (const Actor& a : w.actors) granted += a.dead ? 0 : a.granted;
  ASSERT_GE(w.ledger.total(), granted) << "a charge could pass that does not fit";
  ASSERT_LE(w.ledger.total(), kLimit);
}

void Prepare(World& w, const std::function<void(World&)>& setup) {
  w.ledger.Reset();
  w.actors.clear();
  w.current = -1;
  setup(w);
  for (std::size_t i = 0; i < w.actors.size(); ++i) {
    Actor& a = w.actors[i];
    getcontext(&a.context);
    a.context.uc_stack.ss_sp = g_stacks[i];
    a.context.uc_stack.ss_size = kStackBytes;
    a.context.uc_link = &w.scheduler;
    makecontext(&a.context, reinterpret_cast<void (*)()>(RunActor), 1, static_cast<int>(i));
  }
}

// One schedule; `setup` fills the actors of a fresh world.
void RunOnce(World& w, Explorer& choose, int preemptions,
             const std::function<void(World&)>& setup) {
  Prepare(w, setup);
  const auto runnable = [&](int i) { return i >= 0 && !w.actors[i].done && !w.actors[i].dead; };
  for (;;) {
    std::vector<int> next, kill;
    if (runnable(w.current)) next.push_back(w.current);
    for (int i = 0; i < static_cast<int>(w.actors.size()); ++i) {
      if (!runnable(i)) continue;
      if (i != w.current && (!runnable(w.current) || preemptions > 0)) next.push_back(i);
      if (w.actors[i].killable) kill.push_back(i);
    }
    if (next.empty()) break;
    const int choice = choose.Choose(static_cast<int>(next.size() + kill.size()));
    if (choice >= static_cast<int>(next.size())) {
      w.actors[kill[choice - next.size()]].dead = true;
    } else {
      if (runnable(w.current) && next[choice] != w.current) --preemptions;
      w.current = next[choice];
      swapcontext(&w.scheduler, &w.actors[w.current].context);
    }
    ASSERT_NO_FATAL_FAILURE(CheckAlways(w));
  }
  // Whoever comes last finds exact books.
  Sweep(w.ledger.view(), MakeOwner(99, 1, SlotState::kLive), 0, DeadInWorld());
  std::uint64_t granted = 0;
  for (const Actor& a : w.actors) granted += a.dead ? 0 : a.granted;
  ASSERT_EQ(w.ledger.total(), granted);
  ASSERT_EQ(w.ledger.card().recount_wanted, 0u);
  ASSERT_TRUE(IsValid(w.ledger.view()));
}

std::uint64_t Explore(int preemptions, const std::function<void(World&)>& setup) {
  static World world;
  g_world = &world;
  Explorer choose;
  std::uint64_t schedules = 0;
  do {
    RunOnce(world, choose, preemptions, setup);
    ++schedules;
  } while (!::testing::Test::HasFatalFailure() && choose.Next());
  return schedules;
}

Actor& Add(World& w, std::uint64_t pid, bool killable) {
  Actor& a = w.actors.emplace_back();
  a.owner = MakeOwner(pid, 1, SlotState::kLive);
  a.killable = killable;
  return a;
}

// Claims before the exploration starts, with `bytes` already held.
std::uint32_t Held(World& w, int actor, std::uint64_t bytes) {
  const int slot = Claim(w.ledger.view(), w.actors[actor].owner, {}, 0, DeadInWorld());
  Charge(w.ledger.card(), w.ledger.slot(slot), Kind::kLinear, bytes, kLimit);
  w.actors[actor].granted = bytes;
  return slot;
}

void ChargeThenRelease(World& w, int actor, std::uint32_t slot, std::uint64_t bytes) {
  Actor& a = w.actors[actor];
  if (!Charge<Yield>(w.ledger.card(), w.ledger.slot(slot), Kind::kLinear, bytes, kLimit)) return;
  a.granted += bytes;
  Yield::At();
  a.granted -= bytes;
  Release<Yield>(w.ledger.card(), w.ledger.slot(slot), Kind::kLinear, bytes);
}

#if defined(__SANITIZE_THREAD__)
#define SKIP_FIBERS() GTEST_SKIP() << "fibers are not known to this sanitizer"
#else
#define SKIP_FIBERS() (void)0
#endif

TEST(LedgerSchedule, TwoProcessesAtTheLimit) {
  SKIP_FIBERS();
  const auto setup = [](World& w) {
    w.actors.reserve(2);
    Add(w, 1, true), Add(w, 2, true);
    const std::uint32_t s0 = Held(w, 0, 1), s1 = Held(w, 1, 1);
    w.actors[0].body = [&w, s0] { ChargeThenRelease(w, 0, s0, 5); };
    w.actors[1].body = [&w, s1] { ChargeThenRelease(w, 1, s1, 4); };
  };
  RecordProperty("schedules", static_cast<int>(Explore(100, setup)));
}

TEST(LedgerSchedule, OneIsKilledWhileAnotherSweepsAndBothAreReplaced) {
  SKIP_FIBERS();
  const auto setup = [](World& w) {
    w.actors.reserve(3);
    Add(w, 1, true), Add(w, 2, false), Add(w, 3, true);
    const std::uint32_t s0 = Held(w, 0, 3), s1 = Held(w, 1, 1);
    w.actors[0].body = [&w, s0] { ChargeThenRelease(w, 0, s0, 5); };
    w.actors[1].body = [&w, s1] { ChargeThenRelease(w, 1, s1, 6); };
    w.actors[2].body = [&w] { Sweep<Yield>(w.ledger.view(), w.actors[2].owner, 0, DeadInWorld()); };
  };
  RecordProperty("schedules", static_cast<int>(Explore(3, setup)));
}

TEST(LedgerSchedule, TwoSweepersReapOneVictimAndOneSweeperDiesToo) {
  SKIP_FIBERS();
  const auto setup = [](World& w) {
    w.actors.reserve(3);
    Add(w, 1, true), Add(w, 2, true), Add(w, 3, false);
    const std::uint32_t s0 = Held(w, 0, 4);
    w.actors[0].body = [&w, s0] {
      Actor& a = w.actors[0];
      a.granted -= 4;
      Release<Yield>(w.ledger.card(), w.ledger.slot(s0), Kind::kLinear, 4);
    };
    for (int i : {1, 2}) {
      w.actors[i].body = [&w, i] {
        Sweep<Yield>(w.ledger.view(), w.actors[i].owner, 0, DeadInWorld());
      };
    }
  };
  RecordProperty("schedules", static_cast<int>(Explore(3, setup)));
}

TEST(LedgerSchedule, ANewcomerClaimsWhileTheDeadIsReaped) {
  SKIP_FIBERS();
  const auto setup = [](World& w) {
    w.actors.reserve(3);
    Add(w, 1, true), Add(w, 2, true), Add(w, 3, false);
    const std::uint32_t s0 = Held(w, 0, 4);
    w.actors[0].body = [&w, s0] { ChargeThenRelease(w, 0, s0, 5); };
    w.actors[1].body = [&w] {
      const int slot = Claim<Yield>(w.ledger.view(), w.actors[1].owner, {}, 0, DeadInWorld());
      if (slot >= 0) ChargeThenRelease(w, 1, slot, 6);
    };
    w.actors[2].body = [&w] { Sweep<Yield>(w.ledger.view(), w.actors[2].owner, 0, DeadInWorld()); };
  };
  RecordProperty("schedules", static_cast<int>(Explore(2, setup)));
}

TEST(LedgerSchedule, RecountBesideChargesNeverCountsTooLittle) {
  SKIP_FIBERS();
  const auto setup = [](World& w) {
    w.actors.reserve(3);
    Add(w, 1, false), Add(w, 2, false), Add(w, 3, true);
    const std::uint32_t s0 = Held(w, 0, 3), s1 = Held(w, 1, 2);
    w.ledger.card().total += 4ull << kBytesShift;  // what a death inside a charge left behind
    w.ledger.card().recount_wanted = 12345;
    w.actors[0].body = [&w, s0] { ChargeThenRelease(w, 0, s0, 1); };
    w.actors[1].body = [&w, s1] {
      w.actors[1].granted -= 2;
      Release<Yield>(w.ledger.card(), w.ledger.slot(s1), Kind::kLinear, 2);
    };
    w.actors[2].body = [&w] { Recount<Yield>(w.ledger.view(), 0, 2); };
  };
  RecordProperty("schedules", static_cast<int>(Explore(3, setup)));
}

}  // namespace
}  // namespace tessera::contract
