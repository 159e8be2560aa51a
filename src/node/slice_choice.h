// Which live slice a user means by NAME.
//
// Names are their owners' text and unique only among the honest: whoever may make slices can give
// one any name, also the id of another, and any age.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "node/store.h"

namespace tessera::node {

// Index of the slice with this id, else of the one of `user` with this name, else of the only one
// of others. kFailedPrecondition, with ids and owners, where several could be meant; kNotFound.
Result<std::size_t> ChooseSlice(const std::vector<const SliceRecord*>& live,
                                const std::string& name, uid_t user);

}  // namespace tessera::node
