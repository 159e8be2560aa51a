"""The CUDA back end of llama.cpp as shipped prebuilt (ggml): matrices through cuBLAS and its own kernels.

llama_check.py BINS CUDA_LIBS: the folder of libggml-*.so, the folder of libcudart.so.13 and libcublas.so.13.
"""
import ctypes
import json
import pathlib
import sys
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p

bins, cuda_libs = map(pathlib.Path, sys.argv[1:3])
ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
for name in ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13"):
    ctypes.CDLL(str(cuda_libs / name), ctypes.RTLD_GLOBAL)
base = ctypes.CDLL(str(bins / "libggml-base.so"), ctypes.RTLD_GLOBAL)
cuda = ctypes.CDLL(str(bins / "libggml-cuda.so"), ctypes.RTLD_GLOBAL)

F32, F16, Q4_0 = 0, 1, 2  # ggml_type
LogCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
log = []


@LogCallback
def on_log(_level, text, _data):
    log.append(text.decode(errors="replace"))


class InitParams(Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


def function(library, name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


base.ggml_log_set.argtypes = [LogCallback, c_void_p]
base.ggml_log_set(on_log, None)
init = function(base, "ggml_init", c_void_p, InitParams)
tensor_2d = function(base, "ggml_new_tensor_2d", c_void_p, c_void_p, c_int, c_int64, c_int64)
mul_mat = function(base, "ggml_mul_mat", c_void_p, c_void_p, c_void_p, c_void_p)
add = function(base, "ggml_add", c_void_p, c_void_p, c_void_p, c_void_p)
rms_norm = function(base, "ggml_rms_norm", c_void_p, c_void_p, c_void_p, c_float)
soft_max = function(base, "ggml_soft_max", c_void_p, c_void_p, c_void_p)
new_graph = function(base, "ggml_new_graph", c_void_p, c_void_p)
expand = function(base, "ggml_build_forward_expand", None, c_void_p, c_void_p)
nbytes = function(base, "ggml_nbytes", c_size_t, c_void_p)
free_context = function(base, "ggml_free", None, c_void_p)
allocate = function(base, "ggml_backend_alloc_ctx_tensors", c_void_p, c_void_p, c_void_p)
free_buffer = function(base, "ggml_backend_buffer_free", None, c_void_p)
tensor_set = function(base, "ggml_backend_tensor_set", None, c_void_p, c_void_p, c_size_t, c_size_t)
tensor_get = function(base, "ggml_backend_tensor_get", None, c_void_p, c_void_p, c_size_t, c_size_t)
compute = function(base, "ggml_backend_graph_compute", c_int, c_void_p, c_void_p)
free_backend = function(base, "ggml_backend_free", None, c_void_p)
cuda_init = function(cuda, "ggml_backend_cuda_init", c_void_p, c_int)
device_count = function(cuda, "ggml_backend_cuda_get_device_count", c_int)
device_memory = function(cuda, "ggml_backend_cuda_get_device_memory", None, c_int, POINTER(c_size_t), POINTER(c_size_t))

backend = cuda_init(0)
assert backend, "".join(log)
free, total = c_size_t(), c_size_t()
device_memory(0, byref(free), byref(total))

statuses, same = {}, True
for label, kind, rows in (("f16", F16, 64), ("q4_0", Q4_0, 64), ("f32", F32, 64), ("q4_0 one row", Q4_0, 1)):
    context = init(InitParams(64 << 20, None, True))
    weights, inputs = tensor_2d(context, kind, 1024, 512), tensor_2d(context, F32, 1024, rows)
    product = mul_mat(context, weights, inputs)
    out = soft_max(context, add(context, rms_norm(context, product, 1e-5), product))
    graph = new_graph(context)
    expand(graph, out)
    buffer = allocate(context, backend)
    data = bytes(range(256)) * (nbytes(inputs) // 256)
    tensor_set(inputs, data, 0, len(data))
    zeros = bytes(nbytes(weights))
    tensor_set(weights, zeros, 0, len(zeros))
    statuses[label] = [compute(backend, graph) for _ in range(4)]  # repeated: the back end turns it into a CUDA graph
    back = ctypes.create_string_buffer(len(data))
    tensor_get(inputs, back, 0, len(data))
    same = same and back.raw == data
    free_buffer(buffer)
    free_context(context)

# More than the card: the back end reports the refusal and gives no buffer.
context = init(InitParams(1 << 20, None, True))
tensor_2d(context, F32, 1 << 20, (total.value >> 22) + 1024)
refused = allocate(context, backend) is None
free_context(context)
free_backend(backend)
print(json.dumps({
    "answers": {"cards": device_count(), "compute": statuses, "inputs back": same, "more than there is refused": refused},
    "saw": {"total_mib": total.value / (1 << 20), "log": "".join(log)[-2000:]},
}))
