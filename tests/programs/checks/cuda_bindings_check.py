"""cuda-bindings and NVRTC: the driver API from Python, with a kernel compiled here and now.

cuda_bindings_check.py HOST_KERNELS: a library with the host twin of the kernel (see samples/host_kernels.h).
"""
import ctypes
import json
import sys

import numpy
from cuda.bindings import driver, nvrtc

ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)


def ok(answer):
    code, *values = answer
    if int(code) != 0:
        raise RuntimeError(f"{code!r}")
    return values[0] if len(values) == 1 else tuple(values)


def code(answer):
    return answer[0].name


SOURCE = b"""
extern "C" __global__ void Scale(float* data, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= by;
}
"""

ok(driver.cuInit(0))
card = ok(driver.cuDeviceGet(0))
context = ok(driver.cuDevicePrimaryCtxRetain(card))
ok(driver.cuCtxSetCurrent(context))
major = ok(driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, card))
minor = ok(driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, card))

program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"scale.cu", 0, [], []))
ok(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=sm_{major}{minor}".encode()]))
image = b" " * ok(nvrtc.nvrtcGetCUBINSize(program))
ok(nvrtc.nvrtcGetCUBIN(program, image))
module = ok(driver.cuModuleLoadData(image))
kernel = ok(driver.cuModuleGetFunction(module, b"Scale"))
missing = code(driver.cuModuleGetFunction(module, b"NoSuchKernel"))

n = 1 << 14
host = numpy.arange(n, dtype=numpy.float32)
out = numpy.zeros_like(host)
stream = ok(driver.cuStreamCreate(0))
data = ok(driver.cuMemAlloc(host.nbytes))
ok(driver.cuMemcpyHtoDAsync(data, host.ctypes.data, host.nbytes, stream))
arguments = ((int(data), 3.0, n), (ctypes.c_void_p, ctypes.c_float, ctypes.c_int))
ok(driver.cuLaunchKernel(kernel, n // 256, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
ok(driver.cuMemcpyDtoHAsync(out.ctypes.data, data, host.nbytes, stream))
ok(driver.cuStreamSynchronize(stream))
scaled = bool((out == host * 3).all())
ok(driver.cuMemFree(data))

free_before, total = ok(driver.cuMemGetInfo())
pool_memory = ok(driver.cuMemAllocAsync(64 << 20, stream))
ok(driver.cuMemFreeAsync(pool_memory, stream))
ok(driver.cuStreamSynchronize(stream))
ok(driver.cuMemPoolTrimTo(ok(driver.cuDeviceGetDefaultMemPool(card)), 0))

prop = driver.CUmemAllocationProp()
prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
prop.location.id = 0
granularity = ok(driver.cuMemGetAllocationGranularity(
    prop, driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
too_much = code(driver.cuMemAlloc(total + (1 << 30)))
too_much_vmm = code(driver.cuMemCreate((total // granularity + 512) * granularity, prop, 0))
free_after, _ = ok(driver.cuMemGetInfo())

ok(driver.cuModuleUnload(module))
ok(driver.cuStreamDestroy(stream))
ok(driver.cuDevicePrimaryCtxRelease(card))
print(json.dumps({
    "answers": {
        "kernel result": scaled, "missing kernel": missing, "more than there is": too_much,
        "more than there is, cuMemCreate": too_much_vmm, "granularity": granularity,
        "nothing left over": free_before == free_after,
    },
    "saw": {"total_mib": total / (1 << 20)},
}))
