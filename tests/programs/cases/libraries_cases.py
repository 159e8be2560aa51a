"""NVIDIA's own libraries called directly: what programs other than PyTorch load."""
import glob

from harness import HERE, case

LIMIT = 6000
TORCH = "torch-2.15.0"  # its wheels bring all of them but cuRAND
CURAND = "curand-10.4.0"


def simple(name, program, distribution, shown, environment=TORCH, **options):
    cards = options.pop("cards", 1)

    @case(f"library-{name}", program, (environment, distribution), tier="frameworks", timeout=240, **options)
    def run(t):
        argv = [t.config.python(TORCH), HERE / "checks" / "libraries_check.py", name]
        if environment != TORCH:
            argv += glob.glob(f"{t.config.cache}/{environment}/lib/python3*/site-packages")
        done = t.run(argv, mem=LIMIT, cards=cards, timeout=120).json()
        t.expect(not done["answers"]["failed"], f"failed calls: {done['answers']['failed']}")
        if t.fenced:
            t.expect(done["saw"]["total_mib"] == LIMIT, f"total is {done['saw']['total_mib']} MiB, the slice {LIMIT}")
        return {"answers": done["answers"], "shown": [shown]}


simple("cublas", "cuBLAS and cuBLASLt", "nvidia-cublas",
       "handles, sgemm, bf16 GemmEx, batched gemm, axpy, Lt heuristic and matmul: every status 0")
simple("cudnn", "cuDNN", "nvidia-cudnn-cu13", "activation, softmax and convolution forward: every status 0")
simple("solvers", "cuSPARSE and cuSOLVER", "nvidia-cusolver", "handles and an LU factorisation: every status 0")
simple("curand", "cuRAND", "nvidia-curand", "uniform and normal numbers from a seeded generator: every status 0", environment=CURAND)
simple("nvrtc", "NVRTC", "nvidia-cuda-nvrtc", "source compiled for the card, loaded and launched; an unknown kernel is refused")
simple("nccl", "NCCL", "nvidia-nccl-cu13", "all_reduce of one rank; communicators for two cards in one process", cards=2,
       node="two-a10g")
