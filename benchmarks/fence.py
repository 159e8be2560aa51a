#!/usr/bin/env python3
"""What the fence costs a program, against the bare driver, in one run: every figure is taken bare and fenced in turn, in
fresh processes, with a driver that returns at once.

usage: fence.py --build DIR [--repetitions 9] [--out DIR]

What another process does on the machine adds to a figure and never takes away from it: so calls are compared by the least of
their medians, starts of processes by the tenth percentile of CPU time. Peer figures: HAMi-core 8f3a89c as its build script ships
it, by the same procedure on a 2-core machine (its medians)."""
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
LOCKED = "nine locked instructions of 5 to 7 ns (one fewer above 1 MiB), six of them the charge and the refund"
QUIET = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]


def environments(build, slice_directory):
    base = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(build, "bench/null")}
    fenced = dict(base, LD_PRELOAD=os.path.join(build, "lib/libtessera.so"), TESSERA_SLICE_DIR=slice_directory)
    return base, fenced


def in_turn(count):
    """0, 1, 1, 0, 0, 1, ...: bare and fenced alternate and neither is always first."""
    for turn in range(count):
        yield from ((0, 1) if turn % 2 == 0 else (1, 0))


def figures_of(command, environment):
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return {name.strip(): float(value) for name, value in (line.rsplit(" ", 1) for line in output.splitlines())}


def both(command, pair, repetitions, pick):
    """{name: (bare, fenced - bare)}, each side `pick` of its runs."""
    runs = ([], [])
    for which in in_turn(repetitions):
        runs[which].append(figures_of(command, pair[which]))
    result = {}
    for name in runs[0][0]:
        bare, fenced = (pick([run[name] for run in side]) for side in runs)
        result[name] = (bare, fenced - bare)
    return result


def tenth(values):
    return sorted(values)[len(values) // 10]


def start(command, environment):
    return os.posix_spawn(command[0], command, environment, file_actions=QUIET)


def cpu_us(pid):
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"fence.py: a process failed with status {status}")
    return (usage.ru_utime + usage.ru_stime) * 1e6


def starts(command, pair, count):
    times = ([], [])
    for which in in_turn(count):
        times[which].append(cpu_us(start(command, pair[which])))
    bare, fenced = tenth(times[0]), tenth(times[1])
    return bare, fenced - bare


def at_once(command, environment, count):
    begin = time.perf_counter()
    cpu = sum(cpu_us(pid) for pid in [start(command, environment) for _ in range(count)])
    return time.perf_counter() - begin, cpu / 1e6


def living(command, environment, count):
    """CPU seconds of processes that start together, wait for one another and end."""
    held = [subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    for process in held:
        if not process.stdout.readline().startswith(b"ready"):
            sys.exit("fence.py: one of the processes that live together did not start")
    for process in held:
        process.stdin.close()
        process.stdout.close()
    cpu = sum(cpu_us(process.pid) for process in held)
    for process in held:
        process.returncode = 0  # waited for above
    return cpu / 1e6


def busy(cause=None):
    """Why a figure is too high: what is known of the cause, and whether the machine had other work. None: neither."""
    load = os.getloadavg()[0]
    other = f"the machine was busy: load {load:.1f} on {os.cpu_count()} cores" if load > os.cpu_count() else None
    return "; ".join(reason for reason in (cause, other) if reason) or None


def add_calls(table, program, pair, repetitions):
    table.measured(f"Added to one call: CPU time of the thread, median of 41 chunks, least of {repetitions} processes each way")
    for name, (bare, added) in both([program, "calls"], pair, repetitions, min).items():
        family, what = name.split("/", 1)
        if family == "launch":
            table.add(what, "ns", added, bare, 3, HAMI["launch"], busy())
        elif family == "alloc":
            table.add("alloc+free " + what, "ns", added, bare, 100, HAMI[f"alloc {what.split()[1]}"], busy(LOCKED))
        elif what == "cuMemGetInfo":
            table.add(what, "ns", added, bare, 30, HAMI["memgetinfo"], busy())
        else:
            table.add(what, "ns", added, bare, 100, HAMI["procaddress"], busy())


def add_processes(table, program, pair, empty):
    table.measured("Added to one process: its CPU time, tenth percentile of 1,000 (cuInit: 60) processes each way")
    bare, added = starts(["/bin/true"], pair, 1000)
    floor = starts(["/bin/true"], (pair[0], dict(pair[0], LD_PRELOAD=empty)), 1000)[1]
    table.add("/bin/true, start to end", "us", added, bare, 50, HAMI["true"], busy(f"of it, {floor:.3g} us for any library at all"))
    table.add("/bin/true, an empty library in its place", "us", floor, bare)
    init = both([program, "init"], pair, 60, tenth)
    table.add("cuInit", "us", init["cuInit_us"][1], init["cuInit_us"][0], 100, HAMI["init"], busy())
    table.measured("In all, by the clock: least of 3 runs; the rows below it inform")
    runs = ([], [])
    for which in in_turn(3):
        runs[which].append(at_once([program, "init"], pair[which], 300))
    bare, fenced = (min(side) for side in runs)
    table.add("300 CUDA processes at once", "s", fenced[0], bare[0], 2, "~60 (hundreds)", busy())
    table.add("300 CUDA processes at once, CPU time", "s", fenced[1], bare[1])
    runs = ([], [])
    for which in in_turn(3):
        runs[which].append(living([program, "hold"], pair[which], 300))
    table.add("300 that live together, CPU time", "s", min(runs[1]), min(runs[0]))


def add_memory(table, program, pair):
    table.measured("Of a CUDA process beyond the bare one's, median of 3: threads; Private_* of its smaps_rollup; allocations of 4 KiB")
    alone = both([program, "memory"], pair, 3, statistics.median)
    holder = subprocess.Popen([program, "hold"], env=pair[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if not holder.stdout.readline().startswith(b"ready"):
            sys.exit("fence.py: the second process did not start")
        beside = both([program, "memory"], pair, 3, statistics.median)
    finally:
        holder.communicate()
    bare, added = alone["threads"]
    table.add("threads", "", added, bare, 0, "1")
    bare, added = alone["live=0 private"]
    table.add("private, the only fenced process", "KiB", added, bare, 300, "650 RSS", "of it, pages of the library and the slice that a second process would share: "
              f"{added - beside['live=0 private'][1]:g} KiB")
    for live in (0, 1000, 50000):
        bare, added = beside[f"live={live} private"]
        table.add(f"private beside another, {live:,} live", "KiB", added, bare)
    for live in (1000, 50000):
        grown = beside[f"live={live} private"][1] - beside["live=0 private"][1]
        table.add(f"private for each of {live:,} live", "bytes", grown * 1024 / live)
    table.add("shared with other fenced processes", "KiB", beside["live=0 shared"][1], beside["live=0 shared"][0])


def add_limit(table, program, pair):
    table.measured("A new limit: from the store in the policy to the call that shows it, by the clock, median of 1,001, least of 3")
    got = min(figures_of([program, "limit"], pair[1])["limit_us"] for _ in range(3))
    table.add("limit change in force", "us", got, None, 50, "restart", busy())


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--build", required=True)
    arguments.add_argument("--repetitions", type=int, default=9)
    arguments.add_argument("--out", default=None)
    options = arguments.parse_args()
    build = os.path.abspath(options.build)
    program = os.path.join(build, "bench/fence_cost")
    table = Table("fence", os.path.join(os.path.dirname(os.path.abspath(__file__)), "landed.json"))
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as directory:

        def slice_of_its_own(name):
            path = os.path.join(directory, name)
            write_slice(path, NULL_UUID, TIB, TIB)
            return environments(build, path)

        pair = slice_of_its_own("calls")
        print("what the fence adds; driver: one that returns at once; about a minute ...", flush=True)
        add_calls(table, program, pair, options.repetitions)
        add_processes(table, program, pair, os.path.join(build, "bench/libempty.so"))
        add_memory(table, program, slice_of_its_own("memory"))  # where 300 have been, more pages are looked at
        add_limit(table, program, pair)
    return table.finish(options.out or os.path.join(build, "../bench"))


if __name__ == "__main__":
    sys.exit(main())
