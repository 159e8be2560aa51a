// The directories below STATE/slices: who made them, how one is read and how it goes.
//
// STATE/slices is shared by users who do not trust one another, and a slice directory is its
// owner's, who may swap it for a link at any moment: each is opened once and used from its
// descriptor.
#pragma once

#include <optional>
#include <string>

#include "base/folder.h"
#include "base/result.h"
#include "node/mount_view.h"
#include "node/store.h"

namespace tessera::node {

// STATE/slices. kPermissionDenied when it is somebody's who neither owns STATE nor is root nor the
// caller: that user could move the slices of others.
Result<base::Folder> OpenSlices(const std::string& state);

// The directory of a slice that was read or made.
Result<base::Folder> OpenSlice(const SliceRecord& record);

// Where its policy is, as mounts of it are listed.
std::optional<Place> PlaceOfPolicy(const SliceRecord& record);

// `live` is not filled. kDataLoss: damaged, or not what its name says.
Result<SliceRecord> ReadSlice(const base::Folder& slices, const std::string& id);

// Removes a slice so that no half-removed one is ever seen under its name. What is gone is no
// error.
Status RemoveSlice(const base::Folder& slices, const std::string& id);

// Unfinished and dying directories: the prefix, then the pid and start time of who is at it.
inline constexpr char kNewPrefix[] = ".new.";
inline constexpr char kDeadPrefix[] = ".dead.";
std::string WorkName(const char* prefix, const std::string& id);
// True for a work name whose maker is gone.
bool IsAbandoned(const std::string& name);

}  // namespace tessera::node
