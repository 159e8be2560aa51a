// What a program describes in its own memory, read once: another thread of it may change the
// description between the look of the fence and that of the driver, which is given this copy.
//
//   const PrivateCopy props(caller_props);
//   if (props->location.type == ...) ... real::cuMemCreate(&made, size, props.get(), flags);
#pragma once

#include <cstring>

namespace tessera::fence {

template <typename T>
class PrivateCopy {
 public:
  // `from` is not null.
  explicit PrivateCopy(const T* from) {
    std::memcpy(&value_, from, sizeof value_);
    asm volatile("" : "+m"(value_));  // whatever is asked of it is not read from `from` again
  }
  const T* operator->() const { return &value_; }
  const T& operator*() const { return value_; }
  const T* get() const { return &value_; }

 private:
  T value_;
};

}  // namespace tessera::fence
