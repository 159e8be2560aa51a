// Host twins of the kernels that checks/ compile at run time.
#include "host_kernels.h"

#include <cstddef>

// void Scale(float* data, float by, int n)
HOST_KERNEL(Scale) {
  float* data = ARG(0, float*);
  const auto n = static_cast<std::size_t>(ARG(2, int));
  for (std::size_t i = 0; i < THREADS && i < n; ++i) data[i] *= ARG(1, float);
}
