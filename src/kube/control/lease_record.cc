#include "kube/control/lease_record.h"

#include <algorithm>

#include "kube/objects/meta.h"
#include "kube/objects/patch.h"
#include "kube/text/time.h"

namespace tessera::kube {
namespace {

Status ReadTime(JsonValue& value, std::int64_t& micros) {
  const Result<std::string> text = value.String();
  if (!text) return Fail(text.error());
  if (text->empty()) return {};
  const Result<std::int64_t> time = ParseTime(*text);
  if (!time) return FailField(time.error().message);
  micros = *time;
  return {};
}

Status ReadSpec(JsonValue& value, LeaseRecord& record) {
  return value.Object([&](std::string_view key, JsonValue& field) -> Status {
    if (key == "holderIdentity") return Into(field.String(), record.holder);
    if (key == "leaseDurationSeconds") return Into(field.Integer(), record.seconds);
    if (key == "leaseTransitions") return Into(field.Integer(), record.transitions);
    if (key == "acquireTime") return ReadTime(field, record.acquired_micros);
    if (key == "renewTime") return ReadTime(field, record.renewed_micros);
    return {};
  });
}

}  // namespace

Result<Lease> ReadLease(std::string text) {
  Lease lease;
  ObjectMeta meta;
  const Status done = ReadJson(text, [&](JsonValue& root) {
    return ReadInto(root, meta, [&](std::string_view key, JsonValue& field) -> Status {
      return key == "spec" ? ReadSpec(field, lease.record) : Status();
    });
  });
  if (!done) return Fail(done.error());
  if (meta.resource_version.empty()) {
    return Fail(Code::kDataLoss, "metadata.resourceVersion: missing in a Lease");
  }
  lease.resource_version = std::move(meta.resource_version);
  return lease;
}

std::string LeaseSpec(const LeaseRecord& record) {
  return "{\"holderIdentity\":" + QuoteJson(record.holder) +
         ",\"leaseDurationSeconds\":" + std::to_string(record.seconds) + ",\"acquireTime\":\"" +
         FormatMicroTime(record.acquired_micros) + "\",\"renewTime\":\"" +
         FormatMicroTime(record.renewed_micros) +
         "\",\"leaseTransitions\":" + std::to_string(record.transitions) + "}";
}

}  // namespace tessera::kube
