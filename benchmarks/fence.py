#!/usr/bin/env python3
"""What the fence costs a program, against the bare driver, in one run: every figure is taken bare and fenced in turn, in
fresh processes, and the medians are subtracted.

usage: fence.py --build DIR [--repetitions 7] [--out DIR]

Peer figures: HAMi-core 8f3a89c as its build script ships it, measured with a driver that returns at once on a 2-core
machine (median of 7 repetitions of the same procedure)."""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from policy import write_slice
from table import Table

NULL_UUID = bytes([0x7E, 0x55, 0xE7, 0xA0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
TIB = 1 << 40
HAMI = {"launch": "38", "alloc live=0": "862", "alloc live=1000": "842-4266", "alloc live=50000": "821-355488",
        "memgetinfo": "783", "procaddress": "53-6116", "true": "230-320", "init": "1400-1900"}


def environments(build, slice_directory):
    base = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(build, "bench/null")}
    fenced = dict(base, LD_PRELOAD=os.path.join(build, "lib/libtessera.so"), TESSERA_SLICE_DIR=slice_directory)
    return base, fenced


def figures_of(command, environment):
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return {name.strip(): float(value) for name, value in (line.rsplit(" ", 1) for line in output.splitlines())}


def both(command, environment_pair, repetitions):
    """{name: (bare median, median of fenced - bare over pairs, fenced median)}, order alternating."""
    runs = ([], [])
    for turn in range(repetitions):
        for which in ((0, 1) if turn % 2 == 0 else (1, 0)):
            runs[which].append(figures_of(command, environment_pair[which]))
    result = {}
    for name in runs[0][0]:
        bare = [run[name] for run in runs[0]]
        fenced = [run[name] for run in runs[1]]
        result[name] = (statistics.median(bare), statistics.median(f - b for f, b in zip(fenced, bare)), statistics.median(fenced))
    return result


def spawn_us(command, environment):
    begin = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    process.wait()
    return (time.perf_counter() - begin) * 1e6


def spawn_pairs(command, environment_pair, count):
    times = ([], [])
    for turn in range(count):
        for which in ((0, 1) if turn % 2 == 0 else (1, 0)):
            times[which].append(spawn_us(command, environment_pair[which]))
    return statistics.median(times[0]), statistics.median(times[1])


def start_at_once(command, environment, count):
    begin = time.perf_counter()
    processes = [subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(count)]
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"fence.py: {sum(1 for code in codes if code)} of {count} processes failed")
    return time.perf_counter() - begin


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--build", required=True)
    arguments.add_argument("--repetitions", type=int, default=7)
    arguments.add_argument("--out", default=None)
    options = arguments.parse_args()
    build = os.path.abspath(options.build)
    program = os.path.join(build, "bench/fence_cost")
    table = Table("fence", os.path.join(os.path.dirname(os.path.abspath(__file__)), "landed.json"))

    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as directory:
        write_slice(directory, NULL_UUID, TIB, TIB)
        pair = environments(build, directory)
        print(f"calls: {options.repetitions} pairs of processes ...", flush=True)
        for name, (bare, added, _) in both([program, "calls"], pair, options.repetitions).items():
            family, what = name.split("/", 1)
            if family == "launch":
                table.add(what, "ns", added, bare, 3, HAMI["launch"])
            elif family == "alloc":
                live = what.split()[1]
                table.add("alloc+free " + what, "ns", added, bare, 100, HAMI[f"alloc {live}"])
            elif what == "cuMemGetInfo":
                table.add(what, "ns", added, bare, 30, HAMI["memgetinfo"])
            else:
                table.add(what, "ns", added, bare, 100, HAMI["procaddress"])
        print("processes: 2,000 starts of /bin/true, 40 pairs of cuInit, 300 at once ...", flush=True)
        bare, fenced = spawn_pairs(["/bin/true"], pair, 1000)
        table.add("/bin/true start", "us", fenced - bare, bare, 50, HAMI["true"])
        init = both([program, "init"], pair, 40)
        table.add("cuInit", "us", init["cuInit_us"][1], init["cuInit_us"][0], 100, HAMI["init"])
        table.add("threads of a CUDA process", "", init["threads"][1], init["threads"][0], 0, "1")
        table.add("private memory of a CUDA process", "KiB", init["private_kib"][1], init["private_kib"][0], 300, "650 RSS")
        bare = start_at_once([program, "init"], pair[0], 300)
        fenced = start_at_once([program, "init"], pair[1], 300)
        table.add("300 CUDA processes at once, all of it", "s", fenced, bare, 2, "~60 (hundreds)")
    return table.finish(options.out or os.path.join(build, "../bench"))


if __name__ == "__main__":
    sys.exit(main())
