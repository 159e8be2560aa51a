// A folder for one test; gone when the test ends.
#pragma once

#include <stdlib.h>

#include <string>

#include "base/files.h"

namespace tessera::kube::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/tessera-kube-XXXXXX";
    if (mkdtemp(name)) path_ = name;
  }
  ~TemporaryFolder() {
    if (!path_.empty()) (void)base::RemoveTree(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes (or replaces) a file in it and returns its path.
  std::string Write(const std::string& name, std::string_view text, mode_t mode = 0600) const {
    const std::string file = path_ + "/" + name;
    return base::WriteFileAtomic(file, text, mode) ? file : std::string();
  }

 private:
  std::string path_;
};

}  // namespace tessera::kube::testing
