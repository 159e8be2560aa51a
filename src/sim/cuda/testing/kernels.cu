// Compiled to cubins and fat binaries for the tests of the code reader.
struct Packed {
  int a;
  double b;
  char c[20];
};

__device__ int table[300];
__device__ int filled[2] = {5, 6};
__constant__ float factors[4] = {1, 2, 3, 4};
__managed__ int shared_counter = 7;

extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  __shared__ float tile[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x % 64] = a[i];
  __syncthreads();
  if (i < n)
    c[i] =
        tile[(i + 1) % 64] + b[i] * factors[i & 3] + table[i & 1] + filled[i & 1] + shared_counter;
}

extern "C" __global__ void __launch_bounds__(128) bounded(Packed packed, int* out) {
  out[0] = static_cast<int>(packed.a + packed.b + packed.c[3]);
}

#if defined(CLUSTERS) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(int* out) { out[blockIdx.x] = 1; }
#endif
