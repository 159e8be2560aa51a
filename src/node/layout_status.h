// What contract's checks of a file's layout say, as an error of this side.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "contract/ledger_view.h"

namespace tessera::node {

// kUnimplemented for a layout that this program does not know, kDataLoss for anything else that is
// not as it should be: field, value and what is legal.
inline Status LayoutStatus(const std::string& path, const contract::LayoutFault& fault) {
  if (fault.field == nullptr) return {};
  const std::string value = std::to_string(fault.value);
  if (fault.field == std::string_view("layout")) {
    return Fail(Code::kUnimplemented,
                path + ": layout " + value + ", this tessera reads layout " + fault.legal);
  }
  return Fail(Code::kDataLoss,
              path + ": damaged: " + fault.field + " is " + value + ", legal is " + fault.legal);
}

}  // namespace tessera::node
