"""llama.cpp's CUDA back end as npm ships it, with cuBLAS from the PyPI wheels."""
import glob

from harness import HERE, case

LIMIT = 5000


@case("llama.cpp", "llama.cpp CUDA back end (@node-llama-cpp/linux-x64-cuda)", "3.22.1", tier="frameworks", timeout=400)
def llama(t):
    bins = f"{t.config.cache}/llama-3.22.1/node_modules/@node-llama-cpp/linux-x64-cuda/bins/linux-x64-cuda"
    libs, = glob.glob(f"{t.config.cache}/torch-2.15.0/lib/python3*/site-packages/nvidia/cu13/lib")
    done = t.run([t.config.python("torch-2.15.0"), HERE / "checks" / "llama_check.py", bins, libs], mem=LIMIT, timeout=180).json()
    t.expect(all(code == 0 for codes in done["answers"]["compute"].values() for code in codes),
             f"computes ended with {done['answers']['compute']}: {done['saw']['log']}")
    if t.fenced:
        t.expect(done["saw"]["total_mib"] == LIMIT, f"total is {done['saw']['total_mib']} MiB")
    return {"answers": done["answers"],
            "shown": [f"f16, q4_0 and f32 mul_mat (cuBLAS and own kernels), rms_norm, add, soft_max computed; total {LIMIT} MiB; "
                      "a buffer beyond it refused"]}
