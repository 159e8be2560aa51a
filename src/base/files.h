// The few things that Tessera does with files, each safe against files that other users wrote.
//
// Every descriptor is close-on-exec. Symbolic links in the last component are not followed where
// something is created. Errors carry the path.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tessera::base {

// The whole file, with read(2), never by mapping: a file that shrinks meanwhile is read short and
// raises no SIGBUS. Refuses what is longer than max_bytes (kDataLoss) and what is no regular file,
// before opening could block.
Result<std::string> ReadFile(const std::string& path, std::size_t max_bytes);

// As ReadFile for /proc and /sys, whose files have no size.
Result<std::string> ReadKernelFile(const std::string& path, std::size_t max_bytes);

// The same for what is open already; `path` is for errors.
Result<std::string> ReadDescriptor(int fd, const std::string& path, std::size_t max_bytes);
Status WriteDescriptor(int fd, const std::string& path, std::string_view text);

// Writes beside the file and renames: a reader sees the old or the new text, never half of one.
// When it fails (full disk), the old file stays and nothing is left beside it.
Status WriteFileAtomic(const std::string& path, std::string_view text, mode_t mode);

// A new file of `size` bytes (at least as many as `text` has; the rest reads 0) with every block
// allocated, so that a tenant who maps it never meets SIGBUS on a full disk.
Status CreateWholeFile(const std::string& path, std::string_view text, std::size_t size,
                       mode_t mode);

// Succeeds when it stands already; the mode is given to a new one only.
Status MakeDirectory(const std::string& path, mode_t mode);
bool IsDirectory(const std::string& path);
Result<std::vector<std::string>> ListDirectory(
    const std::string& path);  // sorted, without . and ..

// Removes a directory and what is in it, links not followed, nothing on another file system.
// What is gone already is no error.
Status RemoveTree(const std::string& path);

// Opens /dev/null, for this program only, in place of standard streams that came closed: so that no
// file of ours gets their number and is written to as if it were one.
void FillStandardStreams();

// Where this program was started from: the real path of /proc/self/exe.
Result<std::string> OwnExecutable();

}  // namespace tessera::base
