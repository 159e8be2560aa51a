#include <cstdio>

#include "sim/nodes/node_description.h"

namespace tessera::sim {
namespace {
std::string UuidText(const char* prefix, const std::uint8_t (&u)[16]) {
  char text[48];
  std::snprintf(text, sizeof text,
                "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix,
                u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
                u[13], u[14], u[15]);
  return text;
}
}  // namespace

std::string CardUuidText(const CardSpec& card) { return UuidText("GPU-", card.uuid); }
std::string MigUuidText(const MigSpec& mig) { return UuidText("MIG-", mig.uuid); }

}  // namespace tessera::sim
