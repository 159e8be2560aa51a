"""Checks with PyTorch, one per process: torch_checks.py NAME [ARGUMENT...].

Prints one JSON object as its last line: `answers` must be the same bare and behind a fence, `saw` may differ (sizes).
Device code does not run on the simulated driver, so values are compared only where copies made them.
"""
import gc
import json
import os
import re
import sys
import tempfile

import torch

MIB = 1 << 20


def result(answers, **saw):
    print(json.dumps({"answers": answers, "saw": saw}), flush=True)


def fill(piece_mib, device="cuda"):
    """Allocates until refused: (pieces, text of the refusal)."""
    held = []
    try:
        while True:
            held.append(torch.empty(piece_mib * MIB, dtype=torch.uint8, device=device))
    except torch.OutOfMemoryError as refused:
        return len(held), str(refused), held


def values():
    """Copies in all directions bring back what went in."""
    torch.manual_seed(1)
    host = torch.randint(0, 1 << 30, (512, 257), dtype=torch.int64)
    card = host.cuda()
    there_and_back = torch.equal(card.cpu(), host)
    on_card = torch.empty_like(card)
    on_card.copy_(card)
    strided = host.t().contiguous().cuda()
    pinned = host.pin_memory()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = pinned.to("cuda", non_blocking=True)
    stream.synchronize()
    result({
        "there and back": there_and_back,
        "card to card": torch.equal(on_card.cpu(), host),
        "strided": torch.equal(strided.cpu(), host.t()),
        "pinned": torch.equal(late.cpu(), host),
        "sum of bytes": int(card.cpu().sum()),
        "device": torch.cuda.get_device_name(0),
        "capability": torch.cuda.get_device_capability(0),
    })


def compute():
    """The libraries behind PyTorch start and launch: cuBLAS, cuBLASLt, cuDNN, cuSOLVER."""
    a = torch.zeros(256, 256, device="cuda")
    shapes = []
    for kind in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        shapes.append(tuple((a.to(kind) @ a.to(kind)).shape))
    conv = torch.nn.Conv2d(3, 8, 3).cuda()
    shapes.append(tuple(conv(torch.zeros(2, 3, 32, 32, device="cuda")).shape))
    layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).cuda()
    out = layer(torch.zeros(2, 16, 64, device="cuda"))
    out.sum().backward()
    optimizer = torch.optim.AdamW(layer.parameters())
    optimizer.step()
    shapes.append(tuple(out.shape))
    shapes.append(tuple(torch.softmax(a, dim=1).shape))
    torch.cuda.synchronize()
    result({"shapes": shapes, "gradients": all(p.grad is not None for p in layer.parameters())})


def mem_get_info():
    torch.zeros(1, device="cuda")
    before = torch.cuda.mem_get_info()
    held = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    after = torch.cuda.mem_get_info()
    result(
        {"512 MiB less": (before[0] - after[0]) // MIB, "total unchanged": before[1] == after[1],
         "properties agree": torch.cuda.get_device_properties(0).total_memory == before[1]},
        total_mib=before[1] / MIB, held=held.numel())


def oom():
    """ARGUMENT: MiB per piece. The text of the refusal, and that everything is usable afterwards."""
    piece = int(sys.argv[2]) if len(sys.argv) > 2 else 512
    pieces, text, held = fill(piece)
    held.clear()
    gc.collect()
    torch.cuda.empty_cache()
    again = torch.empty(piece * MIB, dtype=torch.uint8, device="cuda")
    # The caching allocators say "GPU 0 has a total capacity of", cudaMallocAsync's says "Device limit :".
    capacity = re.search(r"(?:total capacity of|Device limit *:) ([0-9.]+) (MiB|GiB)", text)
    result(
        {"refused": "out of memory" in text, "works again": again.numel() == piece * MIB},
        text=text, pieces=pieces, held_mib=pieces * piece,
        capacity=" ".join(capacity.groups()) if capacity else None,
        processes=[int(p) for p in re.findall(r"Process (\d+) has", text)], own=os.getpid())


def fraction():
    torch.zeros(1, device="cuda")
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.25)
    pieces, text, held = fill(64)
    result({"refused": "out of memory" in text, "names the fraction": "allowed" in text or "25.0" in text,
            "at a quarter": abs(pieces * 64 * MIB - total // 4) < 128 * MIB}, held=len(held))


def graphs():
    static = torch.zeros(1024, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            static.add_(1)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    source = torch.arange(1024, dtype=torch.float32, device="cuda")
    target = torch.zeros(1024, device="cuda")
    with torch.cuda.graph(graph):
        target.copy_(source)
        static.mul_(2)
    source.copy_(torch.arange(1024, 0, -1, dtype=torch.float32))
    graph.replay()
    torch.cuda.synchronize()
    refused = False
    other = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(other):
            torch.cuda.synchronize()
    except RuntimeError:
        refused = True
    result({"replayed copy": target.cpu()[0].item(), "synchronize in capture refused": refused})


def _receiver(queue, answers):
    tensor = queue.get()
    answers.put(int(tensor.cpu().sum()))
    del tensor


def ipc():
    import torch.multiprocessing as mp
    context = mp.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    child = context.Process(target=_receiver, args=(queue, answers))
    child.start()
    tensor = torch.arange(100000, dtype=torch.int64).cuda()
    queue.put(tensor)
    got = answers.get(timeout=120)
    child.join(60)
    result({"sum at the receiver": got, "receiver ended": child.exitcode})


def two_cards():
    count = torch.cuda.device_count()
    host = torch.arange(65536, dtype=torch.int32)
    across = host.to("cuda:0").to("cuda:1")
    back = across.to("cuda:0")
    result({"cards": count, "across": torch.equal(across.cpu(), host), "back": torch.equal(back.cpu(), host),
            "peer": torch.cuda.can_device_access_peer(0, 1)},
           totals=[torch.cuda.mem_get_info(i)[1] // MIB for i in range(count)])


def _rank(rank, port, out):
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    tensor = torch.full((1024,), float(rank + 1), device=f"cuda:{rank}")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()
    out.put((rank, tensor.numel()))


def nccl():
    import socket
    import torch.multiprocessing as mp
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    context = mp.get_context("spawn")
    out = context.Queue()
    ranks = [context.Process(target=_rank, args=(r, port, out)) for r in range(2)]
    for rank in ranks:
        rank.start()
    done = sorted(out.get(timeout=150) for _ in ranks)
    for rank in ranks:
        rank.join(60)
    result({"ranks": done, "exit codes": [r.exitcode for r in ranks]})


def visible():
    """ARGUMENT: what CUDA_VISIBLE_DEVICES was set to by the caller."""
    uuids = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
    result({"available": torch.cuda.is_available(), "cards": torch.cuda.device_count(), "uuids": uuids})


def fork():
    torch.zeros(1, device="cuda")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.zeros(1, device="cuda")
            said = "worked"
        except RuntimeError as refused:
            said = str(refused).splitlines()[0]
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 4096).decode()
    os.waitpid(child, 0)
    after = torch.ones(4).cuda().cpu().tolist()
    result({"child": said, "parent still works": after})


def compiled():
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

    @torch.compile
    def twice(x):
        return torch.sin(x) * 2 + x

    out = twice(torch.zeros(4096, device="cuda"))
    torch.cuda.synchronize()
    result({"shape": tuple(out.shape), "device": str(out.device)})


def hold():
    """ARGUMENTS: MiB, file. Holds memory until the file is gone: the neighbour in other checks."""
    import time
    held = torch.empty(int(sys.argv[2]) * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    print(f"holding {os.getpid()}", flush=True)
    while os.path.exists(sys.argv[3]):
        time.sleep(0.02)
    result({"held": held.numel()})


if __name__ == "__main__":
    globals()[sys.argv[1]]()
