#include "cli/suggest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace tessera::cli {
namespace {

// Letters added, left out or replaced, and neighbours swapped, each counted as one.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1), before(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    std::size_t before_diagonal = 0;  // two rows up, two columns to the left of `j`
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        change = std::min(change, before_diagonal + 1);
      before_diagonal = before[j - 1];
      before[j - 1] = diagonal;
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
    before[b.size()] = diagonal;
  }
  return row[b.size()];
}

}  // namespace

std::string_view Nearest(std::string_view typed, std::span<const std::string_view> words) {
  if (typed.size() > 64) return {};
  const std::size_t allowed = std::max<std::size_t>(2, typed.size() / 3);
  std::string_view best;
  std::size_t best_distance = allowed + 1;
  for (std::string_view word : words) {
    const std::size_t distance = EditDistance(typed, word);
    if (distance < best_distance && distance < word.size()) {
      best = word;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tessera::cli
