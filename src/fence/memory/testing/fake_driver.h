// A driver for unit tests: hands out card memory as the real one does (blocks of 2 MiB, shared by
// small requests) and says what it has given.
//
// It takes the place of the driver by setting real::NAME, so the fence's wrappers run against it in
// the test's own process. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "contract/ledger_ops.h"
#include "contract/policy_view.h"
#include "real.h"

namespace tessera::fence::testing {

inline constexpr int kCards = 2;
inline constexpr std::uint64_t kMiB = 1 << 20;
inline constexpr std::uint64_t kContextBytes = 100 * kMiB;

// Puts the fake driver in place, makes a slice of two cards in a new directory and points the fence
// to it. Once per process.
void Install();
// What the driver has given out on a card, context costs included.
std::uint64_t DriverBytes(int card);
// The most that it ever had given out since this was last asked.
std::uint64_t TakeHighestBytes(int card);
// The next driver call of allocation fails with this.
void FailNext(CUresult result);
// How often the driver was asked to allocate.
int AllocationCalls();
// How often a call named a pool that is destroyed: nothing of the kind may reach the real driver.
int CallsOnTheDead();

// What another thread does while one is inside a driver call: the next call of the kind runs
// `other`, once, before the driver begins or when it is done.
enum class Call {
  kMemAlloc,
  kMemFree,
  kPoolAlloc,
  kPoolTrim,
  kPoolCreate,
  kPoolDestroy,
  kCreateArray,
  kGetDevice,
  kRetain,
  kRelease,
  kContextCreate,
  kContextDestroy,
  kMemCreate,
  kMap,
  kUnmap,
  kCalls
};
void Before(Call call, std::function<void()> other);
void After(Call call, std::function<void()> other);
// From now on a context or pool that ends leaves its handle to the next one, as real drivers may.
void ReuseHandles(bool reuse);
// Closes what cuMemExportToShareableHandle has given: a number that stands for a descriptor.
void CloseExport(int descriptor);

// Whether streams say that they are being captured; what they are asked for comes at once.
void SayCapturing(bool capturing);

// A node that allocates, followed by one that frees it.
struct GraphNode {
  int device = 0;
  std::uint64_t bytes = 0;
  CUdeviceptr address = 0;
};
CUgraph MakeGraph(std::vector<GraphNode> nodes);
// In the next launch of a graph its card's graphs take so much more than its nodes tell, in use or
// not until EndGraphUse.
void GrowInNextLaunch(std::uint64_t bytes, bool in_use);
void EndGraphUse();

// What others hold on the card: seen in the card's free memory only.
void SetNeighbourBytes(int card, std::uint64_t bytes);
// While the next module is loaded, a neighbour takes so much of card 0.
void NeighbourMovesInNextLoad(std::uint64_t bytes);
// So much of managed memory is on its card.
void SetResident(CUdeviceptr pointer, std::uint64_t bytes);
// The same while the next module is loaded.
void ResidentInNextLoad(CUdeviceptr pointer, std::uint64_t bytes);
// Whether the driver tells what this process holds (NVML).
void TellOwnBytes(bool tell);
// How often it was asked.
int OwnBytesAsked();
// What an image takes beyond its 14 MiB, from now on.
void SetCodeBytes(std::uint64_t bytes);
// How many modules are loaded.
int ModulesLoaded();

// The slice.
// The card of the slice that a device is: they stand in opposite order.
int SliceCard(int device);
void SetLimit(int card, std::uint64_t bytes);
// What the policy says that a context takes; 0 = not known.
void SetKnownContextBytes(std::uint64_t bytes);
contract::LedgerView& Ledger();
std::uint64_t LedgerBytes(int card);
std::uint64_t Held(int card, contract::Kind kind);
std::uint64_t Denied(int card);
const std::string& SliceDirectory();

}  // namespace tessera::fence::testing
