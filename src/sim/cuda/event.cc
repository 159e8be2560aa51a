#include "sim/cuda/event.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/pool.h"

namespace tessera::sim {
namespace {

constexpr unsigned kKnownFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t RecordCost(const Event& event) {
  const NodeState* node = Node();
  const std::uint64_t timed = node != nullptr ? node->costs.event_record_ns : 0;
  return event.flags & CU_EVENT_DISABLE_TIMING ? timed / 10 : timed;
}

EventPage* MapPage(int file) {
  void* at = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<EventPage*>(at);
}

bool PageDone(const EventPage& page) {
  return page.known.load() == page.recorded.load() && page.when_ns.load() <= NowNs();
}

void Publish(EventPage* page, const Point& point) {
  if (page == nullptr) return;
  const std::uint64_t number = page->recorded.fetch_add(1) + 1;
  WhenKnown(point, [page, number](std::uint64_t when_ns) {
    page->when_ns.store(when_ns);
    if (page->known.load() < number) page->known.store(number);
  });
}

// Where an event is found by other processes.
struct EventTicket {
  std::uint32_t magic;
  std::int32_t pid, file;
  std::int32_t card;
  std::uint32_t flags;
};
constexpr std::uint32_t kTicketMagic = 0x56454D53;  // "SMEV"
static_assert(sizeof(EventTicket) <= sizeof(CUipcEventHandle));

void FreeEvent(Event* event) {
  // A page may still be written by a record that is pending: it is left mapped (4 KiB of an event
  // that was shared).
  if (event->page_file >= 0) close(event->page_file);
  delete event;
}

bool EventDone(Event& event) {
  std::lock_guard lock(event.mutex);
  if (event.opened) return PageDone(*event.page);
  return !event.recorded || IsDone(event.point);
}

}  // namespace

CUresult FindEvent(CUevent handle, Event** event) {
  *event = Find<Event>(handle);
  return *event != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void RecordAt(Event& event, const Point& point) {
  std::lock_guard lock(event.mutex);
  event.recorded = true;
  event.point = point;
  event.capture_id = 0;
  event.captured.clear();
  Publish(event.page, point);
}

CUresult RecordEvent(Stream& stream, Event& event) {
  Work record;
  record.duration_ns = RecordCost(event);
  Point point;
  SIM_TRY(Submit(stream, std::move(record), &point));
  RecordAt(event, point);
  return CUDA_SUCCESS;
}

CUresult WaitForEvent(Stream& stream, Event& event) {
  std::unique_lock lock(event.mutex);
  if (event.opened) {
    EventPage* page = event.page;
    const std::uint64_t number = page->recorded.load();
    if (PageDone(*page)) return CUDA_SUCCESS;
    lock.unlock();
    Work wait;
    wait.ready = [page, number] {
      return page->known.load() >= number && page->when_ns.load() <= NowNs();
    };
    return Submit(stream, std::move(wait));
  }
  if (!event.recorded) return CUDA_SUCCESS;
  const Point point = event.point;
  lock.unlock();
  JoinPoint(stream, point);
  return CUDA_SUCCESS;
}

void EndEventsOf(Context& context) {
  ForEach<Event>([&](Event* event) {
    if (event->context != &context) return;
    RemoveHandle<Event>(event->handle);
    FreeEvent(event);
  });
}

}  // namespace tessera::sim

using namespace tessera::sim;

SIM_API(cuEventCreate)(CUevent* handle, unsigned flags) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  if (handle == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
    return CUDA_ERROR_INVALID_VALUE;
  auto* event = new Event;
  event->context = context;
  event->flags = flags;
  if (flags & CU_EVENT_INTERPROCESS) {
    event->page_file = memfd_create("tessera-sim-event", MFD_CLOEXEC);
    if (event->page_file < 0 || ftruncate(event->page_file, kPageBytes) != 0 ||
        (event->page = MapPage(event->page_file)) == nullptr) {
      FreeEvent(event);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  event->handle = NewHandle(event);
  if (event->handle == nullptr) {
    FreeEvent(event);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = event->handle;
  return CUDA_SUCCESS;
}

SIM_API(cuEventDestroy_v2)(CUevent handle) {
  Event* event = RemoveHandle<Event>(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  FreeEvent(event);
  return CUDA_SUCCESS;
}

SIM_API(cuEventDestroy)(CUevent handle) { return impl_cuEventDestroy_v2(handle); }

SIM_API(cuEventRecordWithFlags)(CUevent handle, CUstream stream_handle, unsigned flags) {
  Stream* stream = nullptr;
  Event* event = nullptr;
  SIM_TRY(FindStream(stream_handle, &stream));
  SIM_TRY(FindEvent(handle, &event));
  if (flags & ~CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (event->context != stream->context && !event->opened) return CUDA_ERROR_INVALID_HANDLE;
  if (Capturing(*stream))
    return CaptureRecord(*stream, *event, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
  if (flags & CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_ILLEGAL_STATE;
  SIM_TRY(RefuseLegacyCapture(*stream));
  return RecordEvent(*stream, *event);
}

SIM_API(cuEventRecord)(CUevent handle, CUstream stream) {
  return impl_cuEventRecordWithFlags(handle, stream, 0);
}

SIM_API(cuStreamWaitEvent)(CUstream stream_handle, CUevent handle, unsigned flags) {
  Stream* stream = nullptr;
  Event* event = nullptr;
  SIM_TRY(FindStream(stream_handle, &stream));
  SIM_TRY(FindEvent(handle, &event));
  if (flags & ~CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  bool captured;
  {
    std::lock_guard lock(event->mutex);
    captured = event->capture_id != 0;
  }
  if (Capturing(*stream) || captured)
    return CaptureWait(*stream, *event, (flags & CU_EVENT_WAIT_EXTERNAL) != 0);
  if (flags & CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_ILLEGAL_STATE;
  SIM_TRY(RefuseLegacyCapture(*stream));
  return WaitForEvent(*stream, *event);
}

namespace {
CUresult Askable(CUevent handle, Event** event) {
  SIM_TRY(FindEvent(handle, event));
  std::lock_guard lock((*event)->mutex);
  return (*event)->capture_id != 0 ? CUDA_ERROR_CAPTURED_EVENT : Usable(*(*event)->context);
}
}  // namespace

SIM_API(cuEventQuery)(CUevent handle) {
  Event* event = nullptr;
  SIM_TRY(Askable(handle, &event));
  return EventDone(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_API(cuEventSynchronize)(CUevent handle) {
  Event* event = nullptr;
  SIM_TRY(Askable(handle, &event));
  if (event->opened) {
    while (!PageDone(*event->page)) SleepUntil(NowNs() + 50'000);
    return CUDA_SUCCESS;
  }
  Point point;
  {
    std::lock_guard lock(event->mutex);
    if (!event->recorded) return CUDA_SUCCESS;
    point = event->point;
  }
  WaitFor(point);
  TrimPoolsAtSynchronize(event->context->card);
  return Usable(*event->context);
}

SIM_API(cuEventElapsedTime_v2)(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  Event *start = nullptr, *end = nullptr;
  SIM_TRY(Askable(start_handle, &start));
  SIM_TRY(Askable(end_handle, &end));
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  if (!start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  if (!EventDone(*start) || !EventDone(*end)) return CUDA_ERROR_NOT_READY;
  std::uint64_t start_ns = 0, end_ns = 0;
  WhenKnown(start->point, [&](std::uint64_t when_ns) { start_ns = when_ns; });
  WhenKnown(end->point, [&](std::uint64_t when_ns) { end_ns = when_ns; });
  *milliseconds =
      static_cast<float>(static_cast<double>(static_cast<std::int64_t>(end_ns - start_ns)) / 1e6);
  return CUDA_SUCCESS;
}

SIM_API(cuEventElapsedTime)(float* milliseconds, CUevent start, CUevent end) {
  return impl_cuEventElapsedTime_v2(milliseconds, start, end);
}

SIM_API(cuIpcGetEventHandle)(CUipcEventHandle* out, CUevent handle) {
  Event* event = nullptr;
  SIM_TRY(FindEvent(handle, &event));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (event->page == nullptr || event->opened) return CUDA_ERROR_INVALID_HANDLE;
  std::memset(out, 0, sizeof(*out));
  const EventTicket ticket{kTicketMagic, getpid(), event->page_file, event->context->card,
                           event->flags};
  std::memcpy(out, &ticket, sizeof(ticket));
  return CUDA_SUCCESS;
}

SIM_API(cuIpcOpenEventHandle)(CUevent* handle, CUipcEventHandle from) {
  Context* context = nullptr;
  SIM_TRY(CurrentContext(&context));
  EventTicket ticket;
  std::memcpy(&ticket, &from, sizeof(ticket));
  if (handle == nullptr || ticket.magic != kTicketMagic) return CUDA_ERROR_INVALID_VALUE;
  if (ticket.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket.pid, ticket.file);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return CUDA_ERROR_INVALID_HANDLE;
  EventPage* page = MapPage(file);
  if (page == nullptr) {
    close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto* event = new Event;
  event->context = context;
  event->flags = ticket.flags;
  event->opened = true;
  event->recorded = true;
  event->page = page;
  event->page_file = file;
  event->handle = NewHandle(event);
  *handle = event->handle;
  return event->handle != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuCtxRecordEvent)(CUcontext context_handle, CUevent handle) {
  Context* context = nullptr;
  Event* event = nullptr;
  SIM_TRY(FindContext(context_handle, &context));
  SIM_TRY(FindEvent(handle, &event));
  if (event->context != context) return CUDA_ERROR_INVALID_HANDLE;
  SIM_TRY(RefuseContextCaptured(*context));
  Stream lane;
  lane.context = context;
  lane.internal = true;
  Work all;
  all.after = TailsOf(*context);
  Point point;
  SIM_TRY(Submit(lane, std::move(all), &point));
  if (point.pending != nullptr) WaitFor(point);  // the lane lives on this stack
  RecordAt(*event, point);
  return CUDA_SUCCESS;
}

SIM_API(cuCtxWaitEvent)(CUcontext context_handle, CUevent handle) {
  Context* context = nullptr;
  Event* event = nullptr;
  SIM_TRY(FindContext(context_handle, &context));
  SIM_TRY(FindEvent(handle, &event));
  SIM_TRY(RefuseContextCaptured(*context));
  ContextStreams& all = StreamsOf(*context);
  std::vector<Stream*> streams;
  {
    std::lock_guard lock(WorkMutex());
    streams = all.streams;
  }
  streams.push_back(&all);
  for (Stream* stream : streams) SIM_TRY(WaitForEvent(*stream, *event));
  return CUDA_SUCCESS;
}
