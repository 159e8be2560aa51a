// Events: marks on a stream's time.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "sim/cuda/work.h"

namespace tessera::sim {

// What processes see of an event that was made for them (CU_EVENT_INTERPROCESS): a page of its own.
struct EventPage {
  std::atomic<std::uint64_t> recorded;  // number of records
  std::atomic<std::uint64_t> known;     // records whose end is known
  std::atomic<std::uint64_t> when_ns;   // end of the last known one
};

struct Event {
  static constexpr HandleKind kKind = HandleKind::kEvent;
  using Handle = CUevent;

  CUevent handle{};
  Context* context = nullptr;
  unsigned flags = 0;
  bool opened = false;  // comes from another process

  std::mutex mutex;  // guards what follows
  bool recorded = false;
  Point point;
  EventPage* page = nullptr;
  int page_file = -1;
  // The last record was captured: the capture's id, and the nodes that a waiter depends on.
  std::uint64_t capture_id = 0;
  std::vector<CaptureTip> captured;
};

CUresult FindEvent(CUevent handle, Event** event);
// Makes `stream` wait for the event's last record.
CUresult WaitForEvent(Stream& stream, Event& event);
// Records at the end of the stream.
CUresult RecordEvent(Stream& stream, Event& event);
// Records at a point that is already on a time axis (graph nodes).
void RecordAt(Event& event, const Point& point);

void EndEventsOf(Context& context);

}  // namespace tessera::sim
