"""Samples of our own, compiled by nvcc: every path by which a runtime program takes memory, and a walk through the API."""
from harness import case

NVCC = "nvcc 13.0.88, CUDA runtime 13.0.96"
LIMIT = 8000
PATHS = ["malloc", "pitch", "managed", "async", "pool", "dlsym", "gpa", "entrypoint", "vmm", "graph", "array", "mipmap"]
PIECE = 128
# What a context may take before the first allocation; an A10G's is about 300 MiB.
MOST_CONTEXT = 700

VARIANTS = {
    "static": "static runtime",
    "shared": "shared runtime",
    "ptds": "per-thread default stream",
    "ptx": "PTX only",
    "rdc": "relocatable device code (-rdc)",
}


def path_case(path, variant):
    name = f"paths-{path}" if variant == "static" else f"paths-{path}-{variant}"

    @case(name, f"sample paths ({path}, {VARIANTS[variant]})", NVCC)
    def run(t):
        done = t.run([f"{t.config.samples}/paths_{variant}", path, PIECE], mem=LIMIT)
        got = done.json()
        mib = 1 << 20
        t.expect(got["free_after"] == got["free_before"], f"{path}: free after the release is {got['free_after']}, "
                 f"before the first piece it was {got['free_before']}")
        if t.fenced:
            t.expect(got["total_mib"] == LIMIT, f"{path}: total is {got['total_mib']} MiB, the slice {LIMIT}")
            t.expect(got["free_before"] < LIMIT * mib, f"{path}: its CUDA context takes nothing of the slice")
            least = LIMIT - MOST_CONTEXT - PIECE
            t.expect(least <= got["held_mib"] <= LIMIT, f"{path}: held {got['held_mib']} MiB of a slice of {LIMIT}")
            t.expect(got["free_full"] < PIECE * mib, f"{path}: refused with {got['free_full']} bytes free")
        else:
            t.expect(got["held_mib"] > LIMIT, f"{path}: bare it got {got['held_mib']} MiB only")
        return {"answers": {"path": path, "error": got["error"]},
                "shown": [f"stopped at the slice of {LIMIT} MiB with {got['error']}; all of it free again afterwards"]}


def runtime_case(variant):
    @case(f"runtime-{variant}", f"sample runtime ({VARIANTS[variant]})", NVCC)
    def run(t):
        answers = t.run([f"{t.config.samples}/runtime_{variant}"]).json()
        return {"answers": answers, "shown": [f"{answers['checks']} checks of the runtime API, the same results bare and fenced"]}


for _path in PATHS:
    path_case(_path, "static")
for _path in ("malloc", "async"):
    path_case(_path, "shared")
    path_case(_path, "ptds")
for _variant in VARIANTS:
    runtime_case(_variant)
