"""NVIDIA's libraries called directly, as programs other than PyTorch do. Values are not looked at: no kernel runs.

libraries_check.py NAME [PACKAGES]: NAME is a function below; PACKAGES a second folder of packages beside those of this Python.
Answers with the calls whose status was not 0.
"""
import ctypes
import json
import pathlib
import sys
from ctypes import byref, c_char_p, c_float, c_int, c_longlong, c_size_t, c_uint, c_ulonglong, c_void_p

statuses = {}


def library(folder, name):
    for place in sys.path + sys.argv[2:]:
        file = pathlib.Path(place) / "nvidia" / folder / "lib" / name
        if file.exists():
            return ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)
    raise SystemExit(f"no {name} in this environment")


def call(loaded, name, *arguments):
    """Calls, and keeps the highest status of that function."""
    status = getattr(loaded, name)(*arguments)
    statuses[name] = max(statuses.get(name, 0), status)
    return status


runtime = library("cu13", "libcudart.so.13")


def memory(size):
    pointer = c_void_p()
    call(runtime, "cudaMalloc", byref(pointer), c_size_t(size))
    call(runtime, "cudaMemset", pointer, 0, c_size_t(size))
    return pointer


def cublas():
    lt, blas = library("cu13", "libcublasLt.so.13"), library("cu13", "libcublas.so.13")
    n, one, zero = 256, c_float(1), c_float(0)
    a, b, c = memory(n * n * 4), memory(n * n * 4), memory(n * n * 4)
    handle = c_void_p()
    call(blas, "cublasCreate_v2", byref(handle))
    call(blas, "cublasSgemm_v2", handle, 0, 0, n, n, n, byref(one), a, n, b, n, byref(zero), c, n)
    f32, bf16, compute_32f = 0, 14, 68
    call(blas, "cublasGemmEx", handle, 0, 0, n, n, n, byref(one), a, bf16, n, b, bf16, n, byref(zero), c, bf16, n, compute_32f, -1)
    call(blas, "cublasSgemmStridedBatched", handle, 0, 0, 64, 64, 64, byref(one), a, 64, c_longlong(4096), b, 64, c_longlong(4096),
         byref(zero), c, 64, c_longlong(4096), 4)
    call(blas, "cublasSaxpy_v2", handle, n, byref(one), a, 1, b, 1)
    call(blas, "cublasDestroy_v2", handle)
    call(lt, "cublasLtCreate", byref(handle))
    what, shape, preference, found = c_void_p(), c_void_p(), c_void_p(), c_int()
    call(lt, "cublasLtMatmulDescCreate", byref(what), compute_32f, f32)
    call(lt, "cublasLtMatrixLayoutCreate", byref(shape), f32, c_ulonglong(n), c_ulonglong(n), c_longlong(n))
    call(lt, "cublasLtMatmulPreferenceCreate", byref(preference))
    results = ctypes.create_string_buffer(96 * 4)  # cublasLtMatmulHeuristicResult_t
    call(lt, "cublasLtMatmulAlgoGetHeuristic", handle, what, shape, shape, shape, shape, preference, 4, results, byref(found))
    call(lt, "cublasLtMatmul", handle, what, byref(one), a, shape, b, shape, byref(zero), c, shape, c, shape, results, None,
         c_size_t(0), None)
    call(lt, "cublasLtDestroy", handle)
    return {"algorithms": found.value > 0}


def cudnn():
    dnn = library("cudnn", "libcudnn.so.9")
    handle, tensor, out, filters, convolution, activation = (c_void_p() for _ in range(6))
    one, zero = c_float(1), c_float(0)
    call(dnn, "cudnnCreate", byref(handle))
    for descriptor in (tensor, out):
        call(dnn, "cudnnCreateTensorDescriptor", byref(descriptor))
        call(dnn, "cudnnSetTensor4dDescriptor", descriptor, 0, 0, 2, 8, 32, 32)
    x, y, w = memory(2 * 8 * 32 * 32 * 4), memory(2 * 8 * 32 * 32 * 4), memory(8 * 8 * 3 * 3 * 4)
    call(dnn, "cudnnCreateActivationDescriptor", byref(activation))
    call(dnn, "cudnnSetActivationDescriptor", activation, 1, 0, ctypes.c_double(0))
    call(dnn, "cudnnActivationForward", handle, activation, byref(one), tensor, x, byref(zero), out, y)
    call(dnn, "cudnnSoftmaxForward", handle, 1, 1, byref(one), tensor, x, byref(zero), out, y)
    call(dnn, "cudnnCreateFilterDescriptor", byref(filters))
    call(dnn, "cudnnSetFilter4dDescriptor", filters, 0, 0, 8, 8, 3, 3)
    call(dnn, "cudnnCreateConvolutionDescriptor", byref(convolution))
    call(dnn, "cudnnSetConvolution2dDescriptor", convolution, 1, 1, 1, 1, 1, 1, 1, 0)
    size = c_size_t()
    call(dnn, "cudnnGetConvolutionForwardWorkspaceSize", handle, tensor, filters, convolution, out, 1, byref(size))
    workspace = memory(max(size.value, 1))
    call(dnn, "cudnnConvolutionForward", handle, byref(one), tensor, x, filters, w, convolution, 1, workspace, size, byref(zero), out, y)
    call(runtime, "cudaDeviceSynchronize")
    call(dnn, "cudnnDestroy", handle)
    return {}


def solvers():
    sparse, solver = library("cu13", "libcusparse.so.12"), library("cu13", "libcusolver.so.12")
    handle, n = c_void_p(), 64
    call(sparse, "cusparseCreate", byref(handle))
    call(sparse, "cusparseDestroy", handle)
    a, pivots, info, size = memory(n * n * 4), memory(n * 4), memory(4), c_int()
    call(solver, "cusolverDnCreate", byref(handle))
    call(solver, "cusolverDnSgetrf_bufferSize", handle, n, n, a, n, byref(size))
    call(solver, "cusolverDnSgetrf", handle, n, n, a, n, memory(max(size.value * 4, 4)), pivots, info)
    call(runtime, "cudaDeviceSynchronize")
    call(solver, "cusolverDnDestroy", handle)
    return {}


def curand():
    rand = library("cu13", "libcurand.so.10")
    generator, numbers = c_void_p(), memory(4096 * 4)
    default, seed = 100, 7
    call(rand, "curandCreateGenerator", byref(generator), default)
    call(rand, "curandSetPseudoRandomGeneratorSeed", generator, c_ulonglong(seed))
    call(rand, "curandGenerateUniform", generator, numbers, c_size_t(4096))
    call(rand, "curandGenerateNormal", generator, numbers, c_size_t(4096), c_float(0), c_float(1))
    call(runtime, "cudaDeviceSynchronize")
    call(rand, "curandDestroyGenerator", generator)
    return {}


def nvrtc():
    compiler, driver = library("cu13", "libnvrtc.so.13"), ctypes.CDLL("libcuda.so.1")
    source = b'extern "C" __global__ void twice(int* out, int value) { out[threadIdx.x] = 2 * value; }'
    program, size = c_void_p(), c_size_t()
    call(compiler, "nvrtcCreateProgram", byref(program), c_char_p(source), c_char_p(b"twice.cu"), 0, None, None)
    options = (c_char_p * 1)(b"--gpu-architecture=sm_86")
    call(compiler, "nvrtcCompileProgram", program, 1, options)
    call(compiler, "nvrtcGetCUBINSize", program, byref(size))
    image = ctypes.create_string_buffer(size.value)
    call(compiler, "nvrtcGetCUBIN", program, image)
    out = memory(128)
    module, function, value = c_void_p(), c_void_p(), c_int(21)
    call(driver, "cuModuleLoadData", byref(module), image)
    call(driver, "cuModuleGetFunction", byref(function), module, c_char_p(b"twice"))
    arguments = (c_void_p * 2)(ctypes.cast(byref(out), c_void_p), ctypes.cast(byref(value), c_void_p))
    call(driver, "cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, arguments, None)
    call(driver, "cuCtxSynchronize")
    missing = driver.cuModuleGetFunction(byref(function), module, c_char_p(b"thrice"))
    call(compiler, "nvrtcDestroyProgram", byref(program))
    return {"cubin": size.value > 0, "a kernel that is not there": missing}


def nccl():
    comm = library("nccl", "libnccl.so.2")

    class Id(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 128)]

    unique, handle = Id(), c_void_p()
    one, out = memory(4096), memory(4096)
    call(comm, "ncclGetUniqueId", byref(unique))
    comm.ncclCommInitRank.argtypes = [c_void_p, c_int, Id, c_int]
    call(comm, "ncclCommInitRank", byref(handle), 1, unique, 0)
    call(comm, "ncclAllReduce", one, out, c_size_t(1024), 7, 0, handle, None)
    call(runtime, "cudaDeviceSynchronize")
    call(comm, "ncclCommDestroy", handle)
    both = (c_void_p * 2)()
    call(comm, "ncclCommInitAll", both, 2, None)
    for one_of in both:
        call(comm, "ncclCommDestroy", c_void_p(one_of))
    return {}


answers = {"cublas": cublas, "cudnn": cudnn, "solvers": solvers, "curand": curand, "nvrtc": nvrtc, "nccl": nccl}[sys.argv[1]]()
free, total, cards = c_size_t(), c_size_t(), c_uint()
runtime.cudaMemGetInfo(byref(free), byref(total))
print(json.dumps({"answers": {"failed": {name: status for name, status in statuses.items() if status}, "calls": sorted(statuses),
                              **answers},
                  "saw": {"total_mib": total.value >> 20}}))
