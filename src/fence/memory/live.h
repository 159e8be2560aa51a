// The tables of this process and what every wrapper does with them.
//
// Thread safety: every function from any thread; no lock is held across a driver call.
#pragma once

#include "charge/charge.h"
#include "memory/alloc_table.h"
#include "memory/contexts.h"

namespace tessera::fence {

namespace detail {
extern AllocTable g_live;
extern AllocTable g_handles;
}  // namespace detail

inline AllocTable& LiveTable() { return detail::g_live; }  // device addresses
// Arrays, mipmapped arrays, external memory, code: charged as a whole, by handle.
inline AllocTable& HandleTable() { return detail::g_handles; }
// Called before the first entry is made: a forked child forgets what is its parent's.
void ForgetTablesOnFork();

// True when this process' calls are accounted. Attaches on first use.
inline bool Fenced() { return AttachSlice() >= Mode::kFenced; }

// What a request is refused with. Nothing else changes.
CUresult Refuse(int card, std::uint64_t bytes);

// A charge that is taken before a driver call and given back unless it is kept.
class Reservation {
 public:
  Reservation(int card, Kind kind, std::uint64_t bytes) : card_(card), kind_(kind) {
    granted_ = bytes == 0 || Reserve(card, kind, bytes);
    if (granted_) bytes_ = bytes;
  }
  ~Reservation() { Refund(card_, kind_, bytes_); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  bool granted() const { return granted_; }
  std::uint64_t bytes() const { return bytes_; }
  // Takes what is missing to `bytes`. False when that does not fit.
  bool Raise(std::uint64_t bytes) {
    if (bytes <= bytes_) return true;
    if (!Reserve(card_, kind_, bytes - bytes_)) return false;
    bytes_ = bytes;
    return true;
  }
  // Keeps `bytes` of it, gives back the rest or takes what is missing. False when that does not
  // fit.
  bool Keep(std::uint64_t bytes) { return Keep(card_, kind_, bytes); }
  // The same where the driver call has told which card it was.
  bool Keep(int card, Kind kind, std::uint64_t bytes) {
    if (bytes > bytes_ && !Reserve(card, kind, bytes - bytes_)) return false;
    if (bytes < bytes_) Refund(card, kind, bytes_ - bytes);
    bytes_ = 0;
    return true;
  }

 private:
  int card_;
  Kind kind_;
  bool granted_ = false;
  std::uint64_t bytes_ = 0;
};

}  // namespace tessera::fence
