// Host twins of device kernels. The simulated driver does not run device code; when a program exports a function
// `simkernel_NAME` it runs that one in place of kernel NAME, at the kernel's place in its stream. A real card ignores
// them, so that the same program shows the same results there.
#pragma once

// HOST_KERNEL(name) { ... ARG(0, float*) ... }: arguments are read from the array that the launch was given.
#define HOST_KERNEL(name) \
  extern "C" __attribute__((visibility("default"), used)) void simkernel_##name( \
      const unsigned* grid, const unsigned* block, void** params)
#define ARG(index, type) (*static_cast<type*>(params[index]))
#define THREADS (std::size_t{grid[0]} * grid[1] * grid[2] * block[0] * block[1] * block[2])
