"""Programs that are tried by hand: rare_checks.py cupy|numba|faiss|onnxruntime|jax. Prints one JSON object."""
import json
import sys

import numpy

MIB = 1 << 20


def result(answers, **saw):
    print(json.dumps({"answers": answers, "saw": saw}))


def cupy():
    import cupy
    host = numpy.arange(1 << 20, dtype=numpy.float32)
    card = cupy.asarray(host)
    held, refused = [], False
    try:
        while True:
            held.append(cupy.cuda.alloc(256 * MIB))
    except cupy.cuda.memory.OutOfMemoryError:
        refused = True
    result({"there and back": bool((cupy.asnumpy(card) == host).all()), "refused": refused},
           total_mib=cupy.cuda.runtime.memGetInfo()[1] / MIB, held_mib=len(held) * 256)


def numba():
    from numba import cuda

    @cuda.jit
    def twice(data):
        i = cuda.grid(1)
        if i < data.size:
            data[i] *= 2

    host = numpy.arange(1 << 16, dtype=numpy.float32)
    card = cuda.to_device(host)
    back = card.copy_to_host()
    twice[256, 256](card)
    cuda.synchronize()
    result({"there and back": bool((back == host).all()), "launched": True},
           total_mib=cuda.current_context().get_memory_info().total / MIB)


def faiss():
    import faiss
    index = faiss.GpuIndexFlatL2(faiss.StandardGpuResources(), 64)
    index.add(numpy.zeros((1000, 64), dtype=numpy.float32))
    distances, _ = index.search(numpy.zeros((10, 64), dtype=numpy.float32), 5)
    result({"rows": index.ntotal, "shape": list(distances.shape)})


def onnxruntime():
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    shape = [64, 64]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "ab"],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    ort.preload_dlls()
    session = ort.InferenceSession(onnx._serialize(model) if hasattr(onnx, "_serialize") else model.SerializeToString(),
                                   providers=["CUDAExecutionProvider"])
    zeros = numpy.zeros(shape, dtype=numpy.float32)
    out = session.run(None, {"a": zeros, "b": zeros})[0]
    result({"providers": session.get_providers()[0], "shape": list(out.shape)})


def jax():
    import jax._src.hardware_utils as hardware
    # jax looks for a device file before it looks for a driver; a machine without a card has none.
    hardware._NVIDIA_GPU_DEVICES = ["/dev/null"]
    import jax as j
    host = numpy.arange(1 << 16, dtype=numpy.float32)
    card = j.device_put(host)
    out = j.jit(lambda x: x * 2)(card)
    out.block_until_ready()
    result({"platform": j.devices()[0].platform, "there and back": bool((numpy.asarray(card) == host).all()),
            "shape": list(out.shape)})


if __name__ == "__main__":
    globals()[sys.argv[1]]()
