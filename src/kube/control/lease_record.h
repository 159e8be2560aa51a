// What stands in a Lease (coordination.k8s.io/v1) about who leads.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tessera::kube {

struct LeaseRecord {
  std::string holder;
  std::int64_t seconds = 0;                              // leaseDurationSeconds
  std::int64_t acquired_micros = 0, renewed_micros = 0;  // by the holder's clock: never compared
  std::int64_t transitions = 0;

  friend bool operator==(const LeaseRecord&, const LeaseRecord&) = default;
};

struct Lease {
  LeaseRecord record;
  std::string resource_version;
};

// kDataLoss as in reader.h.
Result<Lease> ReadLease(std::string text);

// The spec as JSON.
std::string LeaseSpec(const LeaseRecord& record);

}  // namespace tessera::kube
