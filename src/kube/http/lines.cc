#include "kube/http/lines.h"

#include <utility>

namespace tessera::kube {

LineSplitter::Outcome LineSplitter::Take(std::string_view bytes,
                                         const std::function<bool(std::string&)>& line) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (rest_.size() + part.size() > max_bytes_) return Outcome::kTooLong;
    rest_.append(part);
    if (end == std::string_view::npos) return Outcome::kGoOn;
    bytes.remove_prefix(end + 1);
    std::string whole = std::exchange(rest_, std::string());
    if (!whole.empty() && whole.back() == '\r') whole.pop_back();
    if (!whole.empty() && !line(whole)) return Outcome::kEnded;
  }
  return Outcome::kGoOn;
}

}  // namespace tessera::kube
