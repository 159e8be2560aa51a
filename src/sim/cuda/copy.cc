#include "sim/cuda/copy.h"

#include <algorithm>
#include <cstring>

#include "sim/cuda/api.h"
#include "sim/cuda/array.h"
#include "sim/cuda/memory.h"

namespace tessera::sim {
namespace {

// Fills write zeros of this many bytes by giving the pages back: a cleared buffer of gigabytes
// costs no host memory.
constexpr std::uint64_t kClearAtLeast = 64 * 1024;

std::uint64_t MemoryBytesPerSecond(const CardSpec& spec) {
  // Two transfers per clock and pin.
  return std::max<std::uint64_t>(
      1, std::uint64_t{spec.memory_clock_mhz} * 1'000'000 * 2 * spec.memory_bus_bits / 8);
}

std::uint64_t TimeFor(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  return static_cast<std::uint64_t>(
      static_cast<double>(bytes) * 1e9 /
      static_cast<double>(std::max<std::uint64_t>(1, bytes_per_second)));
}

// One end of a copy: where its first byte is and how rows and slices follow.
struct End {
  std::uint64_t address = 0, pitch = 0, slice = 0;
  bool on_card = false, pinned = false, clean = false;
  int card = -1;
};

struct Box {
  std::uint64_t x, y, z, width, height, depth;
  std::uint64_t LastByte(std::uint64_t pitch, std::uint64_t slice) const {
    return x + width + (y + height - 1) * pitch + (z + depth - 1) * slice;
  }
};

// Whether [address, address + bytes) is memory that may be used so; a reservation may be made of
// several mappings.
CUresult CheckSpan(std::uint64_t address, std::uint64_t bytes, bool write, PointerInfo* first) {
  PointerInfo info;
  if (!FindPointerLocked(address, &info)) return CUDA_ERROR_INVALID_VALUE;
  *first = info;
  for (;;) {
    if (write ? !info.writable : !info.readable) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t here = info.base + info.size - address;
    if (bytes <= here) return CUDA_SUCCESS;
    if (!info.range || info.range->kind != RangeKind::kReservation) return CUDA_ERROR_INVALID_VALUE;
    address += here;
    bytes -= here;
    if (!FindPointerLocked(address, &info)) return CUDA_ERROR_INVALID_VALUE;
  }
}

void MarkDirty(std::uint64_t address, std::uint64_t bytes, const PointerInfo& first) {
  PointerInfo info = first;
  for (;;) {
    if (info.range) info.range->dirty = true;
    if (info.dirty) *info.dirty = 1;
    const std::uint64_t here = info.base + info.size - address;
    if (bytes <= here) return;
    address += here;
    bytes -= here;
    if (!FindPointerLocked(address, &info)) return;
  }
}

bool IsClean(const PointerInfo& info) {
  if (!info.range || UntrackedWrites() || info.managed) return false;
  if (info.range->kind == RangeKind::kLarge) return !info.range->dirty;
  return info.dirty && !*info.dirty;
}

// Finds linear memory. `type` HOST needs none of ours, DEVICE must be ours, UNIFIED may be either.
// MemoryLock held.
CUresult FindLinear(CUmemorytype type, std::uint64_t address, std::uint64_t pitch,
                    std::uint64_t height, const Box& box, bool write, End* end) {
  if (box.height > 1 || box.depth > 1) {
    if (pitch < box.x + box.width) return CUDA_ERROR_INVALID_VALUE;
    if (box.depth > 1 && height < box.y + box.height) return CUDA_ERROR_INVALID_VALUE;
  }
  end->pitch = pitch;
  end->slice = pitch * height;
  end->address = address + box.x + box.y * pitch + box.z * end->slice;
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  PointerInfo info;
  const bool known = FindPointerLocked(address, &info);
  if (type == CU_MEMORYTYPE_DEVICE && !known) return CUDA_ERROR_INVALID_VALUE;
  if (!known) return IsDeviceAddress(address) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  const std::uint64_t last = address + box.LastByte(end->pitch, end->slice);
  if (info.host) {
    // Host memory may go on beyond what is pinned.
    end->pinned = last <= info.base + info.size;
    if (type == CU_MEMORYTYPE_DEVICE && !end->pinned) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  }
  PointerInfo first;
  SIM_TRY(CheckSpan(end->address, last - end->address, write, &first));
  end->clean = IsClean(first);
  if (write) MarkDirty(end->address, last - end->address, first);
  end->on_card = first.card >= 0;
  end->card = first.card;
  return CUDA_SUCCESS;
}

CUresult FindArray(CUarray handle, unsigned level, const Box& box, bool write, End* end) {
  const Array* array = Find<Array>(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (level != 0 || !Backed(*array)) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t row = array->element_bytes * array->descriptor.Width;
  if (box.x + box.width > row || box.y + box.height > array->rows ||
      box.z + box.depth > array->slices)
    return CUDA_ERROR_INVALID_VALUE;
  end->pitch = array->row_bytes;
  end->slice = array->row_bytes * array->rows;
  end->address = array->memory + box.x + box.y * end->pitch + box.z * end->slice;
  end->on_card = true;
  end->card = array->context->card;
  PointerInfo info;
  if (write && FindPointerLocked(array->memory, &info)) MarkDirty(array->memory, 1, info);
  return CUDA_SUCCESS;
}

CUresult FindEnd(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array,
                 std::uint64_t pitch, std::uint64_t height, unsigned level, const Box& box,
                 bool write, End* end) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      return FindLinear(type, reinterpret_cast<std::uint64_t>(host), pitch, height, box, write,
                        end);
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED:
      return FindLinear(type, device, pitch, height, box, write, end);
    case CU_MEMORYTYPE_ARRAY:
      return FindArray(array, level, box, write, end);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUDA_MEMCPY3D LinearCopy(std::uint64_t destination, CUmemorytype destination_type,
                         std::uint64_t source, CUmemorytype source_type, std::uint64_t bytes) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = source_type;
  copy.srcHost = reinterpret_cast<const void*>(source);
  copy.srcDevice = source;
  copy.dstMemoryType = destination_type;
  copy.dstHost = reinterpret_cast<void*>(destination);
  copy.dstDevice = destination;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

CUresult PlanCopy(const Context& context, const CUDA_MEMCPY3D& copy, CopyPlan* plan) {
  *plan = {};
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return CUDA_SUCCESS;
  const Box from{copy.srcXInBytes,  copy.srcY,   copy.srcZ,
                 copy.WidthInBytes, copy.Height, copy.Depth};
  const Box to{copy.dstXInBytes, copy.dstY, copy.dstZ, copy.WidthInBytes, copy.Height, copy.Depth};
  End source, destination;
  {
    MemoryLock lock;
    SIM_TRY(FindEnd(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray, copy.srcPitch,
                    copy.srcHeight, copy.srcLOD, from, false, &source));
    SIM_TRY(FindEnd(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, copy.dstPitch,
                    copy.dstHeight, copy.dstLOD, to, true, &destination));
  }
  const std::uint64_t bytes = copy.WidthInBytes * copy.Height * copy.Depth;
  plan->source = reinterpret_cast<const char*>(source.address);
  plan->destination = reinterpret_cast<char*>(destination.address);
  plan->source_pitch = source.pitch;
  plan->source_slice = source.slice;
  plan->destination_pitch = destination.pitch;
  plan->destination_slice = destination.slice;
  plan->source_on_card = source.on_card;
  plan->destination_on_card = destination.on_card;
  plan->width = copy.WidthInBytes;
  plan->height = copy.Height;
  plan->depth = copy.Depth;
  plan->pageable =
      (!source.on_card && !source.pinned) || (!destination.on_card && !destination.pinned);
  const CardSpec& spec = *context.device->spec;
  if (source.on_card && destination.on_card && source.card == destination.card) {
    plan->duration_ns = TimeFor(bytes, MemoryBytesPerSecond(spec) / 2);  // read and written
  } else {
    plan->engine = source.on_card ? EngineKind::kFromCard : EngineKind::kToCard;
    std::uint64_t rate = spec.link_bytes_per_s;
    if (plan->pageable) rate = rate * Node()->costs.pageable_permille / 1000;
    plan->duration_ns = TimeFor(bytes, rate);
  }
  // Zeros on zeros.
  if (source.clean && destination.clean && source.on_card && destination.on_card)
    plan->source = plan->destination;
  return CUDA_SUCCESS;
}

void RunCopy(const CopyPlan& plan) {
  if (plan.source == plan.destination || plan.width == 0) return;
  const bool one_row = plan.height == 1 && plan.depth == 1;
  const bool packed = plan.source_pitch == plan.width && plan.destination_pitch == plan.width &&
                      (plan.depth == 1 || (plan.source_slice == plan.width * plan.height &&
                                           plan.destination_slice == plan.width * plan.height));
  if (one_row || packed) {
    std::memmove(plan.destination, plan.source, plan.width * plan.height * plan.depth);
    return;
  }
  for (std::uint64_t z = 0; z < plan.depth; ++z)
    for (std::uint64_t y = 0; y < plan.height; ++y)
      std::memmove(plan.destination + z * plan.destination_slice + y * plan.destination_pitch,
                   plan.source + z * plan.source_slice + y * plan.source_pitch, plan.width);
}

CUresult SubmitCopy(Stream& stream, const CUDA_MEMCPY3D& copy) {
  // Memory of a graph is not there yet while the graph is captured: addresses are looked at when it
  // is launched.
  if (Capturing(stream)) return CaptureCopy(stream, copy);
  CopyPlan plan;
  SIM_TRY(PlanCopy(*stream.context, copy, &plan));
  if (plan.width == 0) return CUDA_SUCCESS;
  return Enqueue(stream, plan.engine, plan.duration_ns, [plan] { RunCopy(plan); });
}

CUresult CopyAsync(const CUDA_MEMCPY3D& copy, CUstream handle) {
  Stream* stream = nullptr;
  SIM_TRY(FindStream(handle, &stream));
  return SubmitCopy(*stream, copy);
}

CUresult PlanFill(const Context& context, const CUDA_MEMSET_NODE_PARAMS& fill, FillPlan* plan) {
  *plan = {};
  if (fill.elementSize != 1 && fill.elementSize != 2 && fill.elementSize != 4)
    return CUDA_ERROR_INVALID_VALUE;
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  if (fill.dst % fill.elementSize) return CUDA_ERROR_INVALID_VALUE;
  const Box box{0, 0, 0, fill.width * fill.elementSize, fill.height, 1};
  End end;
  {
    MemoryLock lock;
    SIM_TRY(FindLinear(CU_MEMORYTYPE_DEVICE, fill.dst, fill.pitch, fill.height, box,
                       fill.value != 0, &end));
  }
  plan->destination = reinterpret_cast<char*>(end.address);
  plan->pitch = fill.pitch;
  plan->width = box.width;
  plan->height = fill.height;
  plan->value = fill.value;
  plan->element = fill.elementSize;
  plan->on_card = end.on_card;
  plan->duration_ns = TimeFor(box.width * box.height, MemoryBytesPerSecond(*context.device->spec));
  if (fill.value == 0 && end.clean) plan->height = 0;  // zeros already
  return CUDA_SUCCESS;
}

void RunFill(const FillPlan& plan) {
  if (plan.height == 0) return;
  const bool bytes_equal = plan.element == 1 ||
                           (plan.element == 2 && (plan.value & 0xFF) == (plan.value >> 8 & 0xFF)) ||
                           (plan.element == 4 && plan.value == (plan.value & 0xFF) * 0x01010101u);
  const bool packed = plan.height == 1 || plan.pitch == plan.width;
  const std::uint64_t rows = packed ? 1 : plan.height,
                      width = packed ? plan.width * plan.height : plan.width;
  for (std::uint64_t y = 0; y < rows; ++y) {
    char* row = plan.destination + y * plan.pitch;
    if (plan.value == 0 && plan.on_card && width >= kClearAtLeast)
      ZeroDeviceBytes(reinterpret_cast<std::uint64_t>(row), width);
    else if (bytes_equal)
      std::memset(row, static_cast<int>(plan.value & 0xFF), width);
    else if (plan.element == 2)
      std::fill_n(reinterpret_cast<std::uint16_t*>(row), width / 2,
                  static_cast<std::uint16_t>(plan.value));
    else
      std::fill_n(reinterpret_cast<std::uint32_t*>(row), width / 4, plan.value);
  }
}

CUresult SubmitFill(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& fill) {
  if (Capturing(stream)) return CaptureMemset(stream, fill);
  FillPlan plan;
  SIM_TRY(PlanFill(*stream.context, fill, &plan));
  if (!plan.destination) return CUDA_SUCCESS;
  return Enqueue(stream, EngineKind::kCompute, plan.duration_ns, [plan] { RunFill(plan); });
}

}  // namespace tessera::sim
