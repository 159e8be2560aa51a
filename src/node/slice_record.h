// slice.json: what is known of a slice beyond its policy, for people and for the next tessera.
//
// Written by the slice's owner, who may be anybody: read bounded, checked, and never trusted for
// more than the promise.
#pragma once

#include <string>

#include "base/result.h"
#include "node/store.h"

namespace tessera::node {

inline constexpr int kRecordLayout = 1;
inline constexpr char kRecordFile[] = "slice.json";

std::string RecordText(const SliceRecord& record);

// kUnimplemented for a newer layout, kDataLoss for anything that does not parse or is out of range.
// `live`, `directory` and `owner` are not in the text.
Result<SliceRecord> ParseRecord(const std::string& text);

// Identifies this boot: start times of processes are only comparable within one.
std::string BootId();

}  // namespace tessera::node
