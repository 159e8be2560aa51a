// What `tessera doctor` finds, made from facts. Pure.
#pragma once

#include <boost/json/fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/look.h"
#include "driver/second_wall.h"
#include "watch/host.h"

namespace tessera::cli {

enum class Level { kOk, kNote, kWarning, kError };

struct Check {
  std::string id;  // stable word for scripts
  Level level = Level::kOk;
  std::string text;                  // one line
  std::vector<std::string> details;  // more lines, and what to do
};

struct DoctorFacts {
  Observed observed;
  bool inside_slice = false;
  Result<std::string> library = Fail(Code::kNotFound, "not looked for");  // path of the fence
  Status preload;                                                         // of that library
  Status namespaces;
  std::optional<watch::StateDirectory> state;  // none: nothing was promised yet
  driver::SecondWallProbe second_wall;
};

std::vector<Check> Examine(const DoctorFacts& facts);

// 0 all well, 1 warnings, 2 errors.
int ExitCodeOf(const std::vector<Check>& checks);

std::string DoctorText(const std::vector<Check>& checks, const DoctorFacts& facts,
                       std::size_t width);
boost::json::object DoctorJson(const std::vector<Check>& checks, const DoctorFacts& facts);

}  // namespace tessera::cli
