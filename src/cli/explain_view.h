// What `tessera explain` prints, made from plain values. Pure.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>

#include "cli/look.h"
#include "driver/second_wall.h"
#include "model/card.h"
#include "placement/place.h"

namespace tessera::cli {

// Would it fit, where, and why not: a verdict for each card.
std::string FitText(const model::Node& node, const model::Request& request,
                    const placement::Placement& placement, std::size_t width);
boost::json::object FitJson(const model::Node& node, const model::Request& request,
                            const placement::Placement& placement);

// Where a slice sits, by which rule, and what each promise is worth here.
std::string SliceText(const Observed& observed, const watch::SliceFacts& slice,
                      const driver::SecondWallProbe& wall, std::size_t width);
boost::json::object SliceJson(const Observed& observed, const watch::SliceFacts& slice,
                              const driver::SecondWallProbe& wall);

}  // namespace tessera::cli
