#include "node/slice_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/process.h"
#include "node/slice_files.h"
#include "node/slice_record.h"

namespace tessera::node {
namespace {

constexpr std::size_t kMostRecordBytes = 64 << 10;

}  // namespace

Result<base::Folder> OpenSlices(const std::string& state) {
  const Result<base::Folder> around = base::Folder::OpenParentOf(state + "/slices");
  if (!around) return Fail(around.error());
  Result<base::Folder> slices = base::Folder::Open(state + "/slices");
  if (!slices) return slices;
  const uid_t owner = slices->owner();
  if (owner == 0 || owner == geteuid() || owner == around->owner()) return slices;
  return Fail(Code::kPermissionDenied, slices->path() + ": belongs to user " +
                                           std::to_string(owner) + ", who does not own " + state);
}

Result<base::Folder> OpenSlice(const SliceRecord& record) {
  const Result<base::Folder> slices = base::Folder::OpenParentOf(record.directory);
  if (!slices) return Fail(slices.error());
  return slices->Sub(base::NameOf(record.directory));
}

std::optional<Place> PlaceOfPolicy(const SliceRecord& record) {
  const Result<base::Folder> slice = OpenSlice(record);
  if (!slice) return std::nullopt;
  const Result<base::Fd> policy = slice->OpenFile(contract::kPolicyFile, O_PATH);
  return policy ? PlaceOf(policy->get()) : std::nullopt;
}

std::string WorkName(const char* prefix, const std::string& id) {
  base::ProcessIdentity self = base::OwnIdentity();
  return prefix + std::to_string(self.pid) + "." + std::to_string(self.start_ticks) + "." + id;
}

// True for a work name whose maker is gone.
bool IsAbandoned(const std::string& name) {
  for (std::string_view prefix : {std::string_view(kNewPrefix), std::string_view(kDeadPrefix)}) {
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    base::ProcessIdentity maker;
    const char* at = name.data() + prefix.size();
    const char* end = name.data() + name.size();
    auto pid = std::from_chars(at, end, maker.pid);
    if (pid.ec != std::errc() || pid.ptr == end || *pid.ptr != '.') return false;
    auto start = std::from_chars(pid.ptr + 1, end, maker.start_ticks);
    if (start.ec != std::errc()) return false;
    return !base::Alive(maker);
  }
  return false;
}

Status RemoveSlice(const base::Folder& slices, const std::string& id) {
  const std::string dying = WorkName(kDeadPrefix, id);
  if (Status moved = slices.Rename(id, dying); !moved) {
    if (moved.error().code == Code::kNotFound) return {};
    return moved;
  }
  return slices.RemoveTree(dying);
}

Result<SliceRecord> ReadSlice(const base::Folder& slices, const std::string& id) {
  const Result<base::Folder> slice = slices.Sub(id);
  if (!slice) return Fail(slice.error());
  Result<std::string> text = slice->Read(kRecordFile, kMostRecordBytes);
  if (!text) return Fail(text.error());
  Result<SliceRecord> record = ParseRecord(*text);
  if (!record) return FailIn(kRecordFile, record.error());
  if (record->slice.id != id) return Fail(Code::kDataLoss, "slice.json names another slice");
  record->directory = slice->path();
  record->owner = slice->owner();
  Result<PolicyView> policy = ReadPolicy(*slice);
  if (!policy) return Fail(policy.error());
  if (policy->cards.size() != record->slice.cards.size())
    return Fail(Code::kDataLoss, "slice.json and policy disagree");
  // The policy is what the fence obeys: the promise is never less than that.
  for (std::size_t i = 0; i < policy->cards.size(); ++i) {
    if (policy->cards[i].uuid != record->slice.cards[i].uuid) {
      return Fail(Code::kDataLoss, "slice.json and policy name different cards");
    }
    std::uint64_t& promised = record->slice.cards[i].memory_bytes;
    promised = std::max(promised, policy->cards[i].limit_bytes);
  }
  return record;
}

}  // namespace tessera::node
