"""By hand (`make test-frameworks-rare`): CUDA 12 generations, and programs with loaders of their own."""

from harness import HERE, case
from cases.torch_cases import check

LIMIT = 6000


@case("torch-2.9", "PyTorch 2.9 (CUDA 12.8)", ("torch-2.9.1", "torch"), tier="rare", timeout=600)
def torch29(t):
    answers = {}
    for name in ("values", "mem_get_info", "graphs", "fork"):
        answers[name] = check(t, name, environment="torch-2.9.1", mem=LIMIT)["answers"]
    oom = check(t, "oom", "20" if t.fenced else "512", environment="torch-2.9.1", mem=1000)
    if t.fenced:
        t.expect(oom["saw"]["capacity"] == "1000.00 MiB", f"capacity {oom['saw']['capacity']}")
    return {"answers": answers | {"oom": oom["answers"]}, "shown": ["values, mem_get_info, graphs, fork, OOM text of 1000.00 MiB"]}


def script(name, program, version, shown, timeout=600, **env):
    @case(name, program, version, tier="rare", timeout=timeout)
    def run(t):
        done = t.run([t.config.python(version[0]), HERE / "checks" / "rare_checks.py", name], mem=LIMIT, timeout=timeout // 2 - 20,
                     env=env).json()
        if t.fenced and "total_mib" in done["saw"]:
            t.expect(done["saw"]["total_mib"] == LIMIT, f"total is {done['saw']['total_mib']} MiB")
        return {"answers": done["answers"], "shown": [shown]}


script("cupy", "cupy", ("rare", "cupy-cuda12x"), f"arrays there and back, pool, OutOfMemoryError at the slice of {LIMIT} MiB")
script("numba", "numba-cuda", ("rare", "numba-cuda"), f"arrays there and back, JIT and launch, total {LIMIT} MiB")
script("faiss", "faiss-gpu-cu12", ("rare", "faiss-gpu-cu12"), "index on the card built and searched")
script("onnxruntime", "onnxruntime-gpu", ("onnx", "onnxruntime-gpu"), "a MatMul model through the CUDA provider")
script("jax", "jax", ("jax", "jax"), "device_put there and back, jit and launch, 75 % preallocation of the slice",
       XLA_PYTHON_CLIENT_MEM_FRACTION="0.75")
