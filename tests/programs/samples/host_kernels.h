// Host twins of device kernels. The simulated driver does not run device code; when a program
// exports a function `simkernel_NAME` it runs that one in place of kernel NAME, at the kernel's
// place in its stream. A real card ignores them, so that the same program shows the same results
// there.
#pragma once

// HOST_KERNEL(name) { ... ARG(0, float*) ... }: arguments are read from the array that the launch
// was given; `shape` is the grid, then the block.
#define HOST_KERNEL(name)                                                        \
  extern "C" __attribute__((visibility("default"), used)) void simkernel_##name( \
      void** params, const unsigned* shape)
#define ARG(index, type) (*static_cast<type*>(params[index]))
#define THREADS (std::size_t{shape[0]} * shape[1] * shape[2] * shape[3] * shape[4] * shape[5])
