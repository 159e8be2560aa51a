"""A tenant that does what it likes with its own ledger and its own processes hurts nobody but itself, and `tessera ps` says what it
saw. Each case runs beside a neighbour on the same card, whose figures must not move."""
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time

from hostile import (BOUND, CARD_STRIDE, CARDS, HOLDER, LIVE, MIB, OWNER_PID_SHIFT, OWNER_START_SHIFT, ROOT, SIM, SLOT_STRIDE, SLOTS,
                     TESSERA, Case, gone, main, owner_word, program, slot, start_ticks, state_of, wait_until)

NEIGHBOUR_MIB = 700


class Ledger(Case):
    def setUp(self):
        self.on = self.machine()
        self.on.hold(NEIGHBOUR_MIB, "--name", "neighbour")

    def tenant(self, *words, mib=4000, name="tenant", options=()):
        return self.on.start(TESSERA, "run", "--mem", str(mib), "--name", name, *options, "--", *words)

    def holding(self, held, **more):
        process = self.tenant(sys.executable, HOLDER, str(held), **more)
        self.says(process, "holding")
        return process

    def write(self, offset, data, name="tenant"):
        # The very file that a program of the tenant would write through /run/tessera/ledger.
        with open(self.ledger(self.on, name), "r+b") as file:
            file.seek(offset)
            file.write(data)

    def read(self, name="tenant"):
        with open(self.ledger(self.on, name), "rb") as file:
            return file.read()

    def neighbour_is_untouched(self):
        return self.assert_untouched(self.on, "neighbour", NEIGHBOUR_MIB)

    def remarks(self, name="tenant"):
        return self.slice_of(self.on, name)["remarks"]

    # ---- corrupted ---------------------------------------------------------------------------------------------------------

    def test_random_bytes_everywhere(self):
        # A program of the tenant goes on allocating while its ledger is overwritten, all of it, again and again.
        busy = self.tenant(program("busy"), "10", "200")
        self.says(busy, "busy")
        draw = random.Random(3)
        whole = self.read()
        for offset, length in ((0, 512), (512, 2048), (2560, 5632), (8192, 64 * SLOT_STRIDE), (8192 + 4000 * SLOT_STRIDE, 96 * SLOT_STRIDE)):
            for fill in ("random", "ones", "zeros"):
                data = {"random": draw.randbytes(length), "ones": b"\xff" * length, "zeros": b"\0" * length}[fill]
                self.write(offset, data)
                ps = self.neighbour_is_untouched()
                (tenant,) = [slice_ for slice_ in ps["slices"] if slice_["name"] == "tenant"]
                card = tenant["cards"][0]
                self.assertLessEqual(card["held_bytes"] or 0, 23028 * MIB)
                for remark in tenant["remarks"]:
                    self.assertTrue(remark.isprintable(), remark)
                if offset == 0 and fill != "zeros":
                    self.assertTrue(tenant["remarks"], fill)
            text = self.on.cli("ps")
            self.assertIn(text.returncode, (0, 1, 2), text.stderr)
            self.assertTrue(all(len(line) <= 80 for line in text.stdout.splitlines()), text.stdout)
            self.write(0, whole[:8192])
        self.assertEqual(state_of(self.slice_of(self.on, "tenant")["processes"][0]["pid"]) in "RSD", True, "the tenant's own program lives")

    def test_each_field_at_its_extremes(self):
        self.holding(500)
        whole = self.read()
        index = slot(whole, self.slice_of(self.on, "tenant")["processes"][0]["pid"])
        at = SLOTS + index * SLOT_STRIDE
        fields = [(name, offset, 4) for name, offset in (("layout", 8), ("file_bytes", 12), ("cards_offset", 16), ("card_stride", 20),
                                                         ("card_count", 24), ("slots_offset", 28), ("slot_stride", 32), ("slot_count", 36),
                                                         ("kinds", 40))]
        fields += [("magic", 0, 8), ("slots_refused", 48, 8), ("slots_high", 56, 8), ("last_sweep_ns", 64, 8)]
        fields += [(f"card {name}", CARDS + offset, 8) for name, offset in (("total", 0), ("peak", 8), ("denied", 16), ("denied_bytes", 24),
                                                                             ("recount", 32), ("key", 40), ("context", 48))]
        fields += [(f"slot {name}", at + offset, size) for name, offset, size in (
            ("owner", 0, 8), ("pid_namespace", 8, 8), ("stack_start", 16, 8), ("host_pid", 24, 4), ("hooks", 28, 4), ("held", 512, 8),
            ("held context", 512 + 56, 8), ("image_random", 72, 8), ("command", 56, 8))]
        for name, offset, size in fields:
            for value in (0, (1 << size * 8) - 1):
                with self.subTest(field=name, value=value):
                    self.write(offset, value.to_bytes(size, "little"))
                    done = self.on.cli("ps", "--output", "json")
                    self.assertEqual(done.stderr, "")
                    self.assertIn('"neighbour"', done.stdout)
            self.write(offset, whole[offset:offset + size])
        self.neighbour_is_untouched()

    def test_truncated_to_any_length(self):
        # Its own programs meet SIGBUS: the ledger is theirs. Nobody else does.
        self.holding(500)
        for length in (6299647, 8192 + 100, 8192, 600, 512, 511, 1, 0):
            os.truncate(self.ledger(self.on, "tenant"), length)
            self.neighbour_is_untouched()
            self.assertTrue(any(remark.startswith("ledger: ") for remark in self.remarks()), length)
        doctor = self.on.json("doctor")
        self.assertEqual({check["id"]: check["level"] for check in doctor["checks"]}["bypass"], "error", doctor["checks"])

    def test_truncated_under_a_program_that_allocates(self):
        busy = self.tenant(program("busy"), "10", "20")
        self.says(busy, "busy")
        os.truncate(self.ledger(self.on, "tenant"), 0)
        self.assertEqual(busy.wait(timeout=BOUND), -signal.SIGBUS)
        self.neighbour_is_untouched()
        # And the promise of the slice is free again for others.
        wait_until("the slice is gone", lambda: len(self.on.json("ps")["slices"]) == 1, 5)

    def test_grown_to_a_terabyte(self):
        self.holding(500)
        os.truncate(self.ledger(self.on, "tenant"), 1 << 40)
        self.neighbour_is_untouched()
        self.assertIn("ledger: the ledger's length was changed by its tenant", self.remarks())

    def test_deleted_or_replaced(self):
        # From inside, where it is a mount point: not to be done, not even by root.
        for command in ("rm -f /run/tessera/ledger", "mv /run/tessera/ledger /run/tessera/x", "rm -rf /run/tessera", "ln -sf /x /run/tessera/ledger"):
            done = self.on.cli("run", "--mem", "10", "--", "sh", "-c", f"{command}; test -s /run/tessera/ledger")
            self.assertEqual(done.returncode, 0, done.stderr)
        # From outside, as a user whose slice stands in a directory of its own could: it is said, and whoever holds memory is named.
        self.holding(500)
        path = self.ledger(self.on, "tenant")
        os.rename(path, path + ".away")
        ps = self.neighbour_is_untouched()
        self.assertEqual({finding["kind"] for finding in ps["findings"]}, {"ledger-lost", "uncharged"})
        for make in (lambda: os.mkfifo(path), lambda: os.symlink("/dev/zero", path), lambda: os.mkdir(path)):
            make()
            ps = self.neighbour_is_untouched()
            self.assertTrue(self.remarks())
            os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        # Another ledger, with nothing in it.
        with open(path, "wb") as file:
            file.write(self.read_empty())
        ps = self.neighbour_is_untouched()
        self.assertEqual({finding["kind"] for finding in ps["findings"]}, {"uncharged"})

    def read_empty(self):
        with open(self.ledger(self.on, "neighbour"), "rb") as file:
            whole = bytearray(file.read())
        whole[512:2560] = bytes(2048)
        whole[SLOTS:] = bytes(len(whole) - SLOTS)
        return bytes(whole)

    # ---- processes ---------------------------------------------------------------------------------------------------------

    def test_exec_of_another_cuda_program_takes_the_slot_over(self):
        process = self.tenant("sh", "-c", f"exec {sys.executable} -c '{EXECS}' {HOLDER}")
        self.says(process, "first holds")
        before = self.slice_of(self.on, "tenant")
        self.assertEqual(before["cards"][0]["held_by_kind"]["linear"], 900 * MIB)
        process.stdin.write("go\n")
        process.stdin.flush()
        self.says(process, "holding")
        after = self.slice_of(self.on, "tenant")
        self.assertEqual(after["cards"][0]["held_by_kind"]["linear"], 600 * MIB)
        (owner,) = [p for p in after["processes"] if p["held_bytes"][0]]
        self.assertEqual(owner["pid"], before["processes"][0]["pid"], "the same process")
        self.assertEqual(owner["driver_bytes"], owner["held_bytes"])
        self.assertEqual(after["remarks"], [])
        self.neighbour_is_untouched()

    def test_a_fork_gives_nothing_of_its_parents_back(self):
        process = self.tenant(sys.executable, "-c", FORKS)
        self.says(process, "forked")
        tenant = self.slice_of(self.on, "tenant")
        self.assertEqual(tenant["cards"][0]["held_by_kind"]["linear"], 500 * MIB)
        self.neighbour_is_untouched()
        self.ends(process)

    def test_stopped_at_any_instant_in_a_hook(self):
        # Others of the slice go on; what the stopped one holds stays counted, and no wait is longer than a second or so.
        busy = self.tenant("sh", "-c", f"exec 3<&0; {program('busy')} 100 60 <&3 & {sys.executable} -c '{STOPS}' $! ; kill -CONT $!; wait")
        self.says(busy, "busy")
        self.says(busy, "survived")
        self.neighbour_is_untouched()

    def test_stopped_and_killed_with_an_operation_window_open(self):
        process = self.tenant(program("busy"), "100", "60")
        self.says(process, "busy")
        (found,) = [p for p in self.slice_of(self.on, "tenant")["processes"]]
        pid = found["pid"]
        index = slot(self.read(), pid)
        offset = SLOTS + index * SLOT_STRIDE + 512
        # The window is tens of nanoseconds wide: stop until it is hit. The count stands in the low 16 bits of a held word.
        opened = False
        with open(self.ledger(self.on, "tenant"), "rb") as file:
            view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            for _ in range(20000):
                os.kill(pid, signal.SIGSTOP)
                while state_of(pid) not in "Tt":
                    pass
                if any(struct.unpack_from("<Q", view, offset + 8 * kind)[0] & 0xFFFF for kind in range(8)):
                    opened = True
                    break
                os.kill(pid, signal.SIGCONT)
                time.sleep(random.uniform(0, 0.0002))  # where both share a core, it would else be stopped before it ran at all
            view.close()
        self.assertTrue(opened, "never stopped inside a charge")
        self.neighbour_is_untouched()
        # Another program of the same slice is not held up by the stopped one.
        other = self.on.start("nsenter", "-t", str(pid), "-m", sys.executable, HOLDER, "1000")
        self.says(other, "holding")
        os.kill(pid, signal.SIGKILL)
        process.wait(timeout=BOUND)
        # And what the dead one had begun is back: the whole limit but what the other holds is to be had.
        more = self.on.start("nsenter", "-t", str(self.member()), "-m", sys.executable, HOLDER, "2000")
        self.says(more, "holding")
        self.neighbour_is_untouched()

    def member(self):
        return [p for p in self.slice_of(self.on, "tenant")["processes"] if p["held_bytes"][0]][0]["pid"]

    def test_lies_about_pids(self):
        self.holding(500)
        neighbour = self.slice_of(self.on, "neighbour")["processes"][0]["pid"]
        own = self.slice_of(self.on, "tenant")["processes"][0]["pid"]
        whole = self.read()
        mine = slot(whole, own)
        at = SLOTS + mine * SLOT_STRIDE
        row = bytearray(whole[at:at + SLOT_STRIDE])
        for pid, namespace, host_pid in ((neighbour, None, 0), (1, None, 0), (neighbour, 12345, neighbour), (1, 12345, 1), (4194303, None, 0)):
            forged = bytearray(row)
            word = owner_word(pid) if os.path.exists(f"/proc/{pid}") else 1 << OWNER_START_SHIFT | pid << OWNER_PID_SHIFT | LIVE
            struct.pack_into("<Q", forged, 0, word)
            if namespace:
                struct.pack_into("<Q", forged, 8, namespace)
            struct.pack_into("<Q", forged, 16, 0)
            struct.pack_into("<I", forged, 24, host_pid)
            self.write(SLOTS + (mine + 1) * SLOT_STRIDE, bytes(forged))
            self.write(56, struct.pack("<Q", mine + 2))
            with self.subTest(pid=pid, namespace=namespace):
                ps = self.neighbour_is_untouched()
                (tenant,) = [s for s in ps["slices"] if s["name"] == "tenant"]
                self.assertEqual([p["pid"] for p in tenant["processes"]], [own])
                if os.path.exists(f"/proc/{pid}") and (not namespace or host_pid):
                    self.assertTrue(any("not in this slice" in remark for remark in tenant["remarks"]), tenant["remarks"])

    def test_a_lie_does_not_keep_a_promise_for_ever(self):
        for pid, namespace, host_pid in ((1, None, 0), (1, 12345, 1), (77, 12345, 0)):
            with self.subTest(pid=pid, namespace=namespace):
                process = self.holding(500, mib=15000, name="liar")
                own = self.slice_of(self.on, "liar")["processes"][0]["pid"]
                whole = self.read("liar")
                mine = slot(whole, own)
                forged = bytearray(whole[SLOTS + mine * SLOT_STRIDE:SLOTS + (mine + 1) * SLOT_STRIDE])
                struct.pack_into("<Q", forged, 0, start_ticks(1) << OWNER_START_SHIFT | pid << OWNER_PID_SHIFT | LIVE)
                struct.pack_into("<QQI", forged, 8, namespace or struct.unpack_from("<Q", forged, 8)[0], 0, host_pid)
                self.write(SLOTS + (mine + 1) * SLOT_STRIDE, bytes(forged), "liar")
                self.write(56, struct.pack("<Q", mine + 2), "liar")
                self.ends(process)
                done = self.on.cli("run", "--mem", "15000", "--", "true")
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_all_slots_taken_by_one_that_forges_them(self):
        process = self.tenant("sh", "-c", f"exec 3<&0; sleep 60 & echo $!; read line; {sys.executable} {HOLDER} 100 <&3")
        pid = int(process.stdout.readline())
        rows = bytearray(4096 * SLOT_STRIDE)
        for index in range(4096):
            struct.pack_into("<Q", rows, index * SLOT_STRIDE, owner_word(pid))
        self.write(SLOTS, bytes(rows))
        self.write(56, struct.pack("<Q", 4096))
        process.stdin.write("go\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline().strip(), "out of memory")
        tenant = self.slice_of(self.on, "tenant")
        self.assertEqual(tenant["slots_refused"] > 0, True)
        self.assertTrue(any("found no free slot" in remark for remark in tenant["remarks"]), tenant["remarks"])
        self.neighbour_is_untouched()
        os.kill(pid, signal.SIGKILL)

    # ---- the policy --------------------------------------------------------------------------------------------------------

    def test_the_policy_cannot_be_written(self):
        done = self.on.cli("run", "--mem", "500", "--name", "writer", "--", sys.executable, "-c", MAPS_POLICY, HOLDER)
        self.assertEqual(done.stdout.split("\n"), ["open PermissionError EROFS", "map PermissionError", "mprotect EACCES", "proc EROFS",
                                                   "truncate EROFS", "out of memory", ""], done.stderr)
        self.neighbour_is_untouched()

    def test_no_variable_changes_a_slice(self):
        self.on.environment.update(CUDA_DISABLE_CONTROL="true", CUDA_DEVICE_MEMORY_LIMIT="20g", CUDA_DEVICE_MEMORY_LIMIT_0="20g", LD_PRELOAD="",
                                   CUDA_DEVICE_MEMORY_SHARED_CACHE="/tmp/nothing", TESSERA_SLICE_DIR="/nowhere", NVIDIA_VISIBLE_DEVICES="all",
                                   CUDA_VISIBLE_DEVICES="0", CUDA_OVERSUBSCRIBE="true", GPU_CORE_UTILIZATION_POLICY="disable")
        for words in ((), ("env", "-i"), ("env", "-i", "setsid", "-w")):
            with self.subTest(words=words):
                process = self.tenant(*words, sys.executable, HOLDER, "1200", mib=1000, name="variables-" + str(len(words)))
                self.says(process, "out of memory")
        self.neighbour_is_untouched()

    # ---- signals and jumps -------------------------------------------------------------------------------------------------

    def test_longjmp_out_of_hooks(self):
        self.assertEqual(self.ends(self.tenant(program("jumps"), "leave", "3")), "done\n")
        self.neighbour_is_untouched()

    def test_calls_from_signal_handlers_inside_hooks(self):
        self.assertEqual(self.ends(self.tenant(program("jumps"), "reenter", "3")), "done\n")
        self.neighbour_is_untouched()


# A program that holds 900 MiB and becomes another one, the holder of 600.
EXECS = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(900 << 20))
print("first holds", flush=True)
os.read(0, 3)
os.execv(sys.executable, [sys.executable, sys.argv[1], "600"])
"""
# A child frees and allocates with what it has inherited: the driver refuses that, and the parent's memory stays counted.
FORKS = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(500 << 20))
for _ in range(20):
    child = os.fork()
    if child == 0:
        for _ in range(50):
            cuda.cuMemFree_v2(address)
            cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 20))
        cuda.cuDevicePrimaryCtxRelease_v2(0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("forked", flush=True)
os.read(0, 1)
"""
# Stops a busy neighbour in the slice at 300 instants, and each time takes and gives back memory itself.
STOPS = """
import ctypes, os, signal, sys, time
pid = int(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
for round in range(300):
    os.kill(pid, signal.SIGSTOP)
    address = ctypes.c_uint64()
    assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(500 << 20)), round
    assert not cuda.cuMemFree_v2(address), round
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.001)
os.kill(pid, signal.SIGKILL)
print("survived", flush=True)
"""
# Every way to come by a writable policy that a program without privileges has, then more memory than the policy allows.
MAPS_POLICY = """
import ctypes, errno, mmap, os, sys
path = "/run/tessera/policy"
def name(error):
    return errno.errorcode[error.errno]
try:
    os.open(path, os.O_RDWR)
except OSError as error:
    print("open PermissionError", name(error))
file = os.open(path, os.O_RDONLY)
try:
    mmap.mmap(file, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
except PermissionError:
    print("map PermissionError")
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, file, ctypes.c_long(0))
assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(4096), 3) == -1
print("mprotect", errno.errorcode[ctypes.get_errno()])
try:
    os.open(f"/proc/self/fd/{file}", os.O_RDWR)
except OSError as error:
    print("proc", name(error))
try:
    os.truncate(path, 0)
except OSError as error:
    print("truncate", name(error), flush=True)
os.execv(sys.executable, [sys.executable, sys.argv[1], "501"])
"""

if __name__ == "__main__":
    main()
