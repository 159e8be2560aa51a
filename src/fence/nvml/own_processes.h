// The slice's processes, from its ledger.
//
// Thread safety: every function from any thread. The ledger is written by other processes all the
// time: a list is a picture of one moment. Processes of another pid namespace have no pid that
// means anything here and are left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "os/os.h"

namespace tessera::fence::nvml {

struct OwnProcess {
  std::uint32_t pid;       // as this process sees it
  std::uint32_t host_pid;  // as the driver sees it, 0 if not known
  std::uint64_t bytes;     // on the card asked for
};

// Memory for a list that is too large for a stack, straight from the kernel.
template <typename T>
class Scratch {
 public:
  explicit Scratch(std::size_t count)
      : bytes_(count * sizeof(T)),
        data_(static_cast<T*>(os::MapPrivate(bytes_))),
        count_(data_ != nullptr ? count : 0) {}
  ~Scratch() {
    if (data_ != nullptr) os::Unmap(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  std::size_t bytes_;
  T* data_;
  std::size_t count_;
};

class OwnProcesses {
 public:
  // All living processes of the slice that this one can name.
  explicit OwnProcesses(int card);
  std::size_t size() const { return count_; }
  const OwnProcess& operator[](std::size_t i) const { return list_[i]; }
  // By the pid that the driver reports; nullptr for a stranger.
  const OwnProcess* Find(std::uint32_t pid) const;

 private:
  Scratch<OwnProcess> list_;
  std::size_t count_ = 0;
};

}  // namespace tessera::fence::nvml
