"""PyTorch 2.15 (CUDA 13): what frameworks do that samples don't."""
from harness import HERE, case

TORCH = ("torch-2.15.0", "torch")
LIMIT = 6000


def check(t, name, *arguments, environment="torch-2.15.0", **options):
    argv = [t.config.python(environment), HERE / "checks" / "torch_checks.py", name, *arguments]
    return t.run(argv, timeout=options.pop("timeout", 200), **options).json()


def simple(name, shown, mem=LIMIT, **options):
    """A check that has nothing to compare but its answers."""
    cards = options.pop("cards", 1)
    env = options.pop("env", None)
    arguments = options.pop("arguments", ())

    @case(f"torch-{name.replace('_', '-')}", f"PyTorch ({name.replace('_', ' ')})", TORCH, tier="frameworks", timeout=480, **options)
    def run(t):
        done = check(t, name, *arguments, mem=mem, cards=cards, env=env)
        if t.fenced and "total_mib" in done["saw"]:
            t.expect(done["saw"]["total_mib"] == mem, f"total is {done['saw']['total_mib']} MiB, the slice {mem}")
        if t.fenced and "totals" in done["saw"]:
            t.expect(done["saw"]["totals"] == [mem] * cards, f"totals are {done['saw']['totals']} MiB, the slices {mem}")
        return {"answers": done["answers"], "shown": [shown]}


simple("values", "tensors to the card, on the card and back (pinned, strided, on streams) with right values")
simple("compute", "matmul in four types, convolution, Transformer layer forward and backward, AdamW: all launched")
simple("mem_get_info", f"mem_get_info and properties show {LIMIT} MiB; 512 MiB taken are 512 MiB less free")
simple("fraction", "set_per_process_memory_fraction(0.25) refuses at a quarter of the slice")
simple("graphs", "CUDA graph captured and replayed with right values; synchronize inside a capture is refused")
simple("ipc", "a tensor sent to another process arrives with its values")
simple("fork", "a forked child is told that CUDA cannot be used; the parent goes on")
simple("compiled", "torch.compile (Triton) compiles and launches")
simple("two_cards", f"two slices of {LIMIT} MiB on two cards, copies between them with right values", cards=2, node="two-a10g")
simple("nccl", "all_reduce of two processes on two cards by NCCL", cards=2, node="two-a10g")


def allocator_case(label, setting, text="GPU 0 has a total capacity of 1000.00 MiB"):
    @case(f"torch-oom-{label}", f"PyTorch (out of memory, {setting or 'default allocator'})", TORCH, tier="frameworks", timeout=480)
    def run(t):
        """`tessera run --mem 1000`: total capacity of 1000.00 MiB in the text, and no process of another tenant."""
        env = {"PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting} if setting else {}
        stay = t.scratch / "stay"
        stay.touch()
        with t.start([t.config.python(), HERE / "checks" / "hold_check.py", "1024", stay], mem=3000, name="other") as other:
            pid = int(other.line().split()[1])
            # Bare the card has 23 GiB: larger pieces, the same text.
            done = check(t, "oom", "20" if t.fenced else "512", mem=1000, env=env)
            stay.unlink()
        saw = done["saw"]
        t.expect(pid not in saw["processes"] or not t.fenced, f"the refusal names {pid}, another tenant: {saw['text']}")
        if t.fenced:
            t.expect(saw["capacity"] == "1000.00 MiB", f"capacity {saw['capacity']} in: {saw['text']}")
            t.expect(saw["held_mib"] <= 1000, f"held {saw['held_mib']} MiB of 1000")
            t.expect(set(saw["processes"]) <= {saw["own"]}, f"processes {saw['processes']} in: {saw['text']}")
        elif "Process" in saw["text"]:
            t.expect(pid in saw["processes"], f"bare, the refusal does not name {pid}: {saw['text']}")
        return {"answers": done["answers"],
                "shown": [f"“{text}” under `tessera run --mem 1000`; no process of another tenant is named"]}


allocator_case("default", "")
allocator_case("expandable", "expandable_segments:True")
allocator_case("async", "backend:cudaMallocAsync", "Device limit : 1000.00 MiB")


@case("torch-visible-devices", "PyTorch (CUDA_VISIBLE_DEVICES)", TORCH, tier="frameworks", node="two-a10g", timeout=480)
def visible(t):
    """Index, UUID, empty and nonsense choose the same cards bare and behind a fence that promises both."""
    answers = {}
    for label, value in (("both", "0,1"), ("second", "1"), ("swapped", "1,0"), ("none", ""), ("nonsense", "7")):
        answers[label] = check(t, "visible", mem=LIMIT, cards=2, env={"CUDA_VISIBLE_DEVICES": value})["answers"]
    first = answers["both"]["uuids"][0]
    answers["by uuid"] = check(t, "visible", mem=LIMIT, cards=2, env={"CUDA_VISIBLE_DEVICES": f"GPU-{first}"})["answers"]
    t.expect(answers["second"]["uuids"] == answers["both"]["uuids"][1:], "the second card is not what 1 chose")
    t.expect(answers["none"]["cards"] == 0 and answers["nonsense"]["cards"] == 0, f"no card was to be seen: {answers}")
    return {"answers": answers, "shown": ["indices, order, UUID, empty and unknown values choose what they choose bare"]}
