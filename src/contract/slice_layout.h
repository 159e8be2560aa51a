// The slice directory: what the agent promises to a container, and what the container holds.
//
// One directory per container with two files (docs/formats/slice-directory.md is the full page):
//   policy  written by the agent (`tessera run`, `tessera limit`, the node agent), read-only for
//           the tenant;
//   ledger  written by the fence in every process of the container, untrusted by everybody else.
//
// Thread safety: every field marked `atomic` is one aligned 32 or 64-bit word that is read and
// written with std::atomic_ref; the others are written once, before the file gets its final name.
// Invariants:
//   1. Little-endian, fixed offsets, no pointers. A reader checks magic, layout and sizes first and
//      never reads past the size that it mapped itself.
//   2. A file may be longer than the reader knows (newer writer) but never shorter than its header
//      says.
//   3. Units: bytes for memory, nanoseconds of CLOCK_MONOTONIC for time, percent for compute.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::contract {

inline constexpr std::uint64_t kPolicyMagic = 0x31594c4f50525354;  // "TSRPOLY1"
inline constexpr std::uint64_t kLedgerMagic = 0x3152474445525354;  // "TSREDGR1"
inline constexpr std::uint32_t kPolicyLayout = 1;
inline constexpr std::uint32_t kLedgerLayout = 1;

inline constexpr std::uint32_t kMaxCards =
    16;  // cards in one slice; the most a HAMi node registers
inline constexpr std::uint32_t kMaxSlots =
    4096;  // processes of one container that hold card memory
inline constexpr std::uint32_t kNameBytes = 64;

// What a tenant asked for when its compute share is contended (HAMi's GPU_CORE_UTILIZATION_POLICY).
enum class CorePolicy : std::uint32_t { kDefault = 0, kForce = 1, kDisable = 2 };

// Smaller numbers run first (HAMi: 0 high, 1 low).
enum class Priority : std::uint32_t { kHigh = 0, kLow = 1 };

// What the agent does about a process that goes round the fence.
enum class BypassAction : std::uint32_t { kReport = 0, kPause = 1, kKill = 2 };

enum PolicyFlag : std::uint32_t {
  kPolicyTurbo = 1u << 0,       // driver pointers may be handed out where no limit needs the call
  kPolicyOvercommit = 1u << 1,  // the promise may exceed the card
};

enum CardFlag : std::uint32_t {
  kCardIsMig = 1u << 0,  // uuid names a MIG instance: its text form starts with "MIG-"
};

struct PolicyHeader {          // offset 0, 512 bytes
  std::uint64_t magic;         //   0
  std::uint32_t layout;        //   8
  std::uint32_t file_bytes;    //  12
  std::uint32_t cards_offset;  //  16  sizeof(PolicyHeader) in layout 1
  std::uint32_t card_stride;   //  20
  std::uint32_t card_count;    //  24  1..kMaxCards
  std::uint32_t gates_offset;  //  28
  std::uint32_t gate_stride;   //  32
  std::uint32_t flags;         //  36  atomic, PolicyFlag
  std::uint64_t generation;    //  40  atomic; +1 after every change, readers wait on its low half
  std::uint64_t
      heartbeat_ns;  //  48  atomic; CLOCK_MONOTONIC of the agent, 0 = no agent, gates are open
  std::uint32_t core_policy;    //  56  atomic, CorePolicy
  std::uint32_t bypass_action;  //  60  atomic, BypassAction
  char slice_id[kNameBytes];    //  64  NUL-padded
  char slice_name[kNameBytes];  // 128  NUL-padded
  std::uint8_t reserved[320];   // 192
};

struct PolicyCard {           // 256 bytes
  std::uint8_t uuid[16];      //   0  as cuDeviceGetUuid returns it
  std::uint64_t limit_bytes;  //  16  atomic; what the tenant may hold now
  std::uint64_t
      ceiling_bytes;  //  24  atomic; the most that limit_bytes may become without a new slice
  std::uint64_t physical_bytes;   //  32  the whole card, for the reader's sanity checks
  std::uint32_t compute_percent;  //  40  atomic; 1..100
  std::uint32_t priority;         //  44  atomic, Priority
  std::uint32_t flags;            //  48  CardFlag
  std::uint32_t pci_domain;       //  52
  std::uint32_t pci_bus;          //  56
  std::uint32_t pci_device;       //  60
  std::uint64_t context_bytes;  //  64  what one context takes on this card, measured by the agent;
                                //  0 = unknown
  std::uint8_t reserved[184];   //  72
};

struct PolicyGate {           // 64 bytes, one cache line a card
  std::uint32_t word;         //   0  atomic; 0 = open, otherwise held and every launch waits
  std::uint32_t reserved32;   //   4
  std::uint8_t reserved[56];  //   8
};

struct PolicyFile {
  PolicyHeader header;
  PolicyCard cards[kMaxCards];
  PolicyGate gates[kMaxCards];
};

// What a byte is held as. Eight words fill the cache line that one process has for one card.
enum class Kind : std::uint32_t {
  kLinear = 0,    // cuMemAlloc, cuMemAllocPitch
  kManaged = 1,   // cuMemAllocManaged
  kPool = 2,      // reserved by memory pools, in use or not
  kGraph = 3,     // reserved by graph memory nodes
  kVmm = 4,       // cuMemCreate, until the last handle and mapping is gone
  kArray = 5,     // arrays and mipmapped arrays
  kImported = 6,  // external memory (Vulkan, dma-buf) that no other fence has charged
  kContext = 7,   // contexts, modules, device heap, local memory: measured, not asked for
};
inline constexpr std::uint32_t kKinds = 8;

struct LedgerCard {     // 128 bytes
  std::uint64_t total;  //   0  atomic; bytes << 16 | version: the sum over live slots, never less
  std::uint64_t peak_bytes;      //   8  atomic
  std::uint64_t denied_count;    //  16  atomic
  std::uint64_t denied_bytes;    //  24  atomic; size of the last refused request
  std::uint64_t recount_wanted;  //  32  atomic; not 0 after a process died inside a charge
  std::uint64_t
      card_key;  //  40  atomic; hash of the card's UUID where no policy names the cards, else 0
  std::uint64_t context_bytes;  //  48  atomic; what one context takes, as a process of the slice
                                //  has measured it; 0 = not yet
  std::uint8_t reserved[72];    //  56
};

struct LedgerHeader {          // offset 0, 512 bytes
  std::uint64_t magic;         //   0
  std::uint32_t layout;        //   8
  std::uint32_t file_bytes;    //  12
  std::uint32_t cards_offset;  //  16
  std::uint32_t card_stride;   //  20
  std::uint32_t card_count;    //  24  kMaxCards
  std::uint32_t slots_offset;  //  28
  std::uint32_t slot_stride;   //  32
  std::uint32_t slot_count;    //  36
  std::uint32_t kinds;         //  40  kKinds
  std::uint32_t reserved32;    //  44
  std::uint64_t
      slots_refused;         //  48  atomic; processes that found no free slot (they get no memory)
  std::uint64_t slots_high;  //  56  atomic; no slot at or above this index was ever claimed (a
                             //  hint: clamp it)
  std::uint64_t last_sweep_ns;  //  64  atomic; when somebody last looked for dead owners
  std::uint8_t reserved[440];   //  72
};

// Who owns a slot, in one word so that it is claimed and given up by one compare-and-swap: start
// time in clock ticks since boot (39 bits) | pid (22 bits, Linux' PID_MAX_LIMIT) | state (3 bits).
enum class SlotState : std::uint64_t { kFree = 0, kLive = 1, kReaping = 2 };
inline constexpr unsigned kOwnerPidShift = 3;
inline constexpr unsigned kOwnerStartShift = 25;

// A charge word: bytes (48 bits) << 16 | operations under way (16 bits).
inline constexpr unsigned kBytesShift = 16;

struct SlotCard {              // 64 bytes: one cache line
  std::uint64_t held[kKinds];  // atomic charge words
};

struct SlotWork {           // 16 bytes
  std::uint64_t launched;   // atomic
  std::uint64_t completed;  // atomic
};

struct LedgerSlot {             // 1536 bytes
  std::uint64_t owner;          //    0  atomic; 0 = free
  std::uint64_t pid_namespace;  //    8  inode of /proc/self/ns/pid of the owner
  std::uint64_t
      stack_start;         //   16  /proc/self/stat field 28: differs after an exec of the same pid
  std::uint32_t host_pid;  //   24  reserved for the agent; 0 = unknown: no process
                           //       is told its pid in outer namespaces
  std::uint32_t hooks_active;  //   28  entry points that the driver has and the fence stands before
  char build_id[24];           //   32  of the fence in that process
  char command[16];            //   56  as in /proc/self/comm
  std::uint64_t
      image_random;  //   72  of the owner's AT_RANDOM: tells two fences in one process from an exec
  std::uint32_t life_lock;   //   80  atomic; 1: the owner has locked the slot's first byte in the
                             //   file until it is gone
  std::uint32_t reserved32;  //   84
  std::uint64_t time_namespace;  //   88  inode of /proc/self/ns/time of the owner; 0 = unknown
  std::uint8_t reserved[160];    //   96
  SlotWork work[kMaxCards];      //  256
  SlotCard cards[kMaxCards];     //  512
};

struct LedgerFile {
  LedgerHeader header;          //     0
  LedgerCard cards[kMaxCards];  //   512
  std::uint8_t reserved[5632];  //  2560
  LedgerSlot slots[kMaxSlots];  //  8192
};

static_assert(sizeof(PolicyHeader) == 512 && sizeof(PolicyCard) == 256 && sizeof(PolicyGate) == 64);
static_assert(sizeof(PolicyFile) == 512 + 16 * 256 + 16 * 64);
static_assert(sizeof(LedgerHeader) == 512 && sizeof(LedgerCard) == 128 && sizeof(SlotCard) == 64);
static_assert(sizeof(LedgerSlot) == 1536 && offsetof(LedgerSlot, cards) == 512);
static_assert(offsetof(LedgerFile, slots) == 8192);

}  // namespace tessera::contract
