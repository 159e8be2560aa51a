"""Programs from PyPI that use the driver or a runtime of their own."""
from harness import HERE, case

LIMIT = 6000


@case("cuda-bindings", "cuda-bindings + NVRTC", ("programs", "cuda-bindings"))
def cuda_bindings(t):
    done = t.run([t.config.python(), HERE / "checks" / "cuda_bindings_check.py",
                  f"{t.config.samples}/libhost_kernels.so"], mem=LIMIT).json()
    if t.fenced:
        t.expect(done["saw"]["total_mib"] == LIMIT, f"total is {done['saw']['total_mib']} MiB")
    return {"answers": done["answers"],
            "shown": [f"kernel compiled by NVRTC and launched with right results; cuMemGetInfo total {LIMIT} MiB; "
                      "cuMemAlloc and cuMemCreate beyond it: CUDA_ERROR_OUT_OF_MEMORY"]}


@case("ctranslate2", "ctranslate2", ("programs", "ctranslate2"), node="small-card")
def ctranslate2(t):
    small = 1500
    done = t.run([t.config.python(), HERE / "checks" / "ctranslate2_check.py"], mem=small).json()
    held = done["saw"]["held_mib"]
    if t.fenced:
        t.expect(small - 700 <= held <= small, f"held {held} MiB of a slice of {small}")
    else:
        t.expect(held > small, f"bare it held {held} MiB only")
    return {"answers": done["answers"],
            "shown": [f"arrays to the card and back; refused at the slice of {small} MiB: “{done['answers']['refusal']}”"]}
