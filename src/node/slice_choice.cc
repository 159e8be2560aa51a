#include "node/slice_choice.h"

#include "base/plain_text.h"

namespace tessera::node {
namespace {

tl::unexpected<Error> Several(const std::vector<const SliceRecord*>& live,
                              const std::vector<std::size_t>& meant, const std::string& name) {
  std::string ids;
  for (std::size_t i : meant) {
    ids += (ids.empty() ? "" : ", ") + live[i]->slice.id + " of user " +
           std::to_string(live[i]->owner);
  }
  return Fail(Code::kFailedPrecondition, "NAME: '" + base::Shown(name) + "' is the name of " +
                                             std::to_string(meant.size()) +
                                             " live slices, give the id: " + ids);
}

}  // namespace

Result<std::size_t> ChooseSlice(const std::vector<const SliceRecord*>& live,
                                const std::string& name, uid_t user) {
  std::vector<std::size_t> own, others;
  std::string names;
  for (std::size_t i = 0; i < live.size(); ++i) {
    // The name of its directory: there is one at most.
    if (live[i]->slice.id == name) return i;
    if (live[i]->slice.name == name) (live[i]->owner == user ? own : others).push_back(i);
    names += (names.empty() ? "" : ", ") + live[i]->slice.name;
  }
  const std::vector<std::size_t>& meant = own.empty() ? others : own;
  if (meant.size() == 1) return meant.front();
  if (!meant.empty()) return Several(live, meant, name);
  return Fail(Code::kNotFound,
              "NAME: '" + base::Shown(name) + "' is no live slice; " +
                  (names.empty() ? std::string("there is none") : "live: " + names));
}

}  // namespace tessera::node
