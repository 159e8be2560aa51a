// Cuts a stream into lines, with a bound on the length of each.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tessera::kube {

class LineSplitter {
 public:
  enum class Outcome { kGoOn, kEnded, kTooLong };

  explicit LineSplitter(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // Hands out each line that ends in `bytes`; empty lines are skipped, a '\r' before the end is
  // cut. kEnded: the handler wants no more.
  Outcome Take(std::string_view bytes, const std::function<bool(std::string&)>& line);
  bool HasRest() const { return !rest_.empty(); }

 private:
  const std::size_t max_bytes_;
  std::string rest_;
};

}  // namespace tessera::kube
