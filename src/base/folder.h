// A directory that somebody else may own and change while it is worked in.
//
// It is opened once; everything in it is reached from that descriptor by names without a slash, no
// symbolic link is followed, no other file system is stepped into (its owner may have mounted one
// that never answers), and nothing opens that is not what it should be. So whoever owns the
// directory can make a call fail, and cannot lead it elsewhere.
//
// Thread safety: as the descriptor's; one thread for a Folder. Errors carry the path.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace tessera::base {

class Folder {
 public:
  // The last component may not be a link; what stands before it is the caller's choice.
  static Result<Folder> Open(const std::string& path);
  // The folder that holds `path`, and the rest of the calls with its last component.
  static Result<Folder> OpenParentOf(const std::string& path);

  Result<Folder> Sub(const std::string& name) const;
  bool HasSub(const std::string& name) const;
  // Of an entry, whatever it is; none: it is not there.
  std::optional<uid_t> OwnerOf(const std::string& name) const;

  Result<std::vector<std::string>> List() const;  // sorted, without . and ..

  // A regular file with one name only. `flags`: O_RDONLY, O_RDWR or O_PATH.
  Result<Fd> OpenFile(const std::string& name, int flags) const;
  // kDataLoss for what is longer than `max_bytes` and for what is no regular file.
  Result<std::string> Read(const std::string& name, std::size_t max_bytes) const;
  // Writes beside the file and renames. When it fails, the old file stays and nothing is left.
  Status WriteAtomic(const std::string& name, std::string_view text, mode_t mode) const;
  // kNotFound when there is no such entry.
  Status Rename(const std::string& from, const std::string& to) const;
  // A file, or a directory and all in it. What is gone already is no error.
  Status RemoveTree(const std::string& name) const;

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  uid_t owner() const { return owner_; }
  mode_t mode() const { return mode_; }

 private:
  Folder(Fd fd, std::string path, uid_t owner, mode_t mode)
      : fd_(std::move(fd)), path_(std::move(path)), owner_(owner), mode_(mode) {}
  static Result<Folder> Of(Fd fd, std::string path);
  Status Remove(const std::string& name, int depth) const;
  std::string In(const std::string& name) const { return path_ + "/" + name; }

  Fd fd_;
  std::string path_;  // for errors
  uid_t owner_;
  mode_t mode_;
};

// The last component of a path.
std::string NameOf(const std::string& path);

}  // namespace tessera::base
