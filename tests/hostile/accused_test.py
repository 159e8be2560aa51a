"""What user space cannot prevent is found within 30 s by the driver's figures, named by pid and command, and answered as the slice's
policy says: every way round the fence under every answer, all at once on one machine."""
import os
import re
import shutil
import signal
import sys
import time
import unittest

from hostile import BOUND, BUILD, HOLDER, MIB, ROOT, SIM, TESSERA, Case, gone, main, program, state_of, wait_until
from user_test import UserMachine

ANSWERS = ("report", "pause", "kill")
WITHIN_S = 30
DEEP = os.path.join(BUILD, "libdeep.so")

# Every program prints "holding" and waits; each holds 600 MiB that no charge was made for.
DEEPBIND = f"""
import ctypes, sys
assert not ctypes.CDLL({DEEP!r}, mode=8).HoldDeep(ctypes.c_size_t(600 << 20))
print("holding", flush=True)
sys.stdin.read()
"""
# The same in a thread, after the first one has ended.
HEADLESS = f"""
import ctypes, sys, threading, time
def hold():
    while open("/proc/self/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.01)
    assert not ctypes.CDLL({DEEP!r}, mode=8).HoldDeep(ctypes.c_size_t(600 << 20))
    print("holding", flush=True)
    sys.stdin.read()
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(60, 0)
"""
# Holds memory as it should, then makes its ledger say that it holds none.
FORGES = f"""
import ctypes, mmap, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(600 << 20))
with open("/run/tessera/ledger", "r+b") as file:
    file.seek(8192)
    file.write(bytes(4096 * 1536))
    file.seek(512)
    file.write(bytes(2048))
print("holding", flush=True)
sys.stdin.read()
"""
# The same by figures that are too high: the ledger admits all, and more than was promised.
ADMITS = f"""
import os, struct, subprocess, sys
child = subprocess.Popen([{program("raw")!r}, "2600"], stdin=0, stdout=subprocess.PIPE)
assert child.stdout.readline() == b"holding\\n"
start = int(open(f"/proc/{{child.pid}}/stat").read().rsplit(")", 1)[1].split()[19])
space = os.stat("/proc/self/ns/pid").st_ino
slot = bytearray(1536)
struct.pack_into("<QQ", slot, 0, start << 25 | child.pid << 3 | 1, space)
struct.pack_into("<Q", slot, 512, (2600 << 20) << 16)
with open("/run/tessera/ledger", "r+b") as file:
    file.seek(8192)
    file.write(slot)
    file.seek(56)
    file.write(struct.pack("<Q", 1))
print("holding", flush=True)
child.wait()
"""
# Destroys the ledger, then holds memory that it does not need a ledger for.
TRUNCATES = f"""
import os
os.truncate("/run/tessera/ledger", 100)
os.execv({program("raw")!r}, ["raw", "600"])
"""
# A policy of its own in the place of the fence's mapping: the limit is what the program says.
REMAPS = f"""
import ctypes, mmap, re, struct, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context)
policy = bytearray(open("/run/tessera/policy", "rb").read())
struct.pack_into("<QQ", policy, 512 + 16, 20000 << 20, 20000 << 20)
(begin,) = [int(line.split("-")[0], 16) for line in open("/proc/self/maps") if line.endswith("policy\\n")]
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
assert libc.mmap(ctypes.c_void_p(begin), ctypes.c_size_t(8192), 3, 0x32, -1, ctypes.c_long(0)) == begin
ctypes.memmove(begin, bytes(policy), len(policy))
assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2600 << 20))
print("holding", flush=True)
sys.stdin.read()
"""
# Thirty processes that each stay below what one may hold uncharged.
MANY = f"""
import subprocess, sys
children = [subprocess.Popen([{program("raw")!r}, "40"], stdin=0, stdout=subprocess.PIPE) for _ in range(30)]
for child in children:
    assert child.stdout.readline() == b"holding\\n"
print("holding", flush=True)
for child in children:
    child.wait()
"""


def python(text):
    return (sys.executable, "-c", text)


# kind of finding -> command; what is named is the process that holds the memory.
WAYS = {
    "static": ({"no-fence", "uncharged"}, (program("raw_static"), "600"), "raw_static"),
    "raw": ({"uncharged"}, (program("raw"), "600"), "raw"),
    "deepbind": ({"uncharged"}, python(DEEPBIND), "python"),
    "forged": ({"uncharged"}, python(FORGES), "python"),
    "admitted": ({"over-limit"}, python(ADMITS), "raw"),
    "truncated": ({"ledger-lost", "uncharged"}, python(TRUNCATES), "raw"),
    "remapped": ({"over-limit"}, python(REMAPS), "python"),
    "many": ({"uncharged"}, python(MANY), "raw"),
}
# What only the sum of several processes shows is a report: memory that they share may stand in the figure of each.
TOGETHER = ("many",)
if ROOT:
    WAYS["unpreloaded"] = ({"no-fence", "uncharged"},
                           ("sh", "-c", f"mount --bind /dev/null /etc/ld.so.preload && exec {sys.executable} {HOLDER} 600"), "python")
    WAYS["other-root"] = ({"no-fence", "uncharged"}, ("sh", "-c", f"exec env -i unshare -m sh -c 'umount -l /etc; umount -l /run/tessera; "
                                                      f"exec {program('raw_static')} 600'"), "raw_static")


class Accused(Case):
    def test_every_way_round_is_named_and_answered(self):
        machine = self.machine("h100-80")
        started = {}
        for way, (_, words, _) in WAYS.items():
            for answer in ANSWERS:
                started[way, answer] = machine.start(TESSERA, "run", "--mem", "2000", "--name", f"{way}-{answer}", "--on-bypass", answer,
                                                     "--", *words)
        neighbour = machine.hold(300, "--name", "neighbour", "--on-bypass", "kill")
        for (way, answer), process in started.items():
            self.says(process, "holding")
        begun = time.monotonic()
        ps = machine.json("ps")
        for way, (kinds, _, command) in WAYS.items():
            with self.subTest(way=way, look="on demand"):
                findings = [f for f in ps["findings"] if f["slice"] == f"{way}-report"]
                self.assertEqual({f["kind"] for f in findings}, kinds, findings)
                for finding in findings:
                    self.assertEqual(finding["action"], "report")
                    if finding["kind"] == "ledger-lost" or way in TOGETHER:
                        continue
                    self.assertTrue(finding["command"].startswith(command), finding)
                    self.assertIn(f"pid {finding['pid']} ({finding['command']})", finding["text"])
        self.assertEqual([f for f in ps["findings"] if f["slice"] == "neighbour"], [])

        # Each watcher names the culprit where the slice's own stderr is, and does what the policy says.
        heard = {key: "" for key in started}

        def hear(key):
            heard[key] += self.said(started[key])
            way, answer = key
            done = "" if way in TOGETHER else {"report": "", "pause": ": stopped", "kill": ": killed"}[answer]
            return re.search(rf"slice {way}-{answer}: .*pid (\d+) \({WAYS[way][2]}[^)]*\).*{done}\n", heard[key])

        wait_until("each is named and answered", lambda: all([hear(key) for key in started]), WITHIN_S - (time.monotonic() - begun))
        for (way, answer), process in started.items():
            with self.subTest(way=way, answer=answer, look="the watcher"):
                pid = int(hear((way, answer)).group(1))
                if answer == "kill" and way not in TOGETHER:
                    wait_until("it is gone", lambda: gone(pid), 5)
                else:
                    wait_until("its state", lambda: state_of(pid) in ("T" if answer == "pause" and way not in TOGETHER else "SR"), 5)
                    os.kill(pid, signal.SIGKILL)
        self.assert_untouched(machine, "neighbour", 300)
        self.assertEqual(self.said(neighbour), "")

    def test_one_that_leaves_its_namespace_and_its_parents_is_named(self):
        # Without any privilege of its own: a namespace in a namespace, and init for a parent. The slice's files are still in its view.
        machine = self.machine()
        process = machine.start(TESSERA, "run", "--mem", "1000", "--name", "leaver", "--", "sh", "-c",
                                f"exec 3<&0; (setsid unshare -m sh -c '{program('raw_static')} 3000 <&3 & exit' &); read line")
        self.says(process, "holding")
        ps = machine.json("ps")
        self.assertEqual({(f["slice"], f["kind"], f["command"]) for f in ps["findings"]},
                         {("leaver", "no-fence", "raw_static"), ("leaver", "uncharged", "raw_static")})
        self.assertEqual(ps["foreign"], [])

    def test_one_whose_first_thread_has_ended_is_named_and_answered(self):
        # Its /proc/PID shows no namespace and no maps; those of its other threads do.
        machine = self.machine()
        process = machine.start(TESSERA, "run", "--mem", "1000", "--name", "headless", "--on-bypass", "kill", "--", "sh", "-c",
                                'exec 3<&0; (setsid "$0" -c "$1" <&3 & exit); read line', sys.executable, HEADLESS)
        self.says(process, "holding")
        ps = machine.json("ps")
        self.assertEqual([(f["slice"], f["kind"]) for f in ps["findings"]], [("headless", "uncharged")])
        self.assertEqual(ps["foreign"], [])
        pid = ps["findings"][0]["pid"]
        wait_until("it is gone", lambda: not os.path.exists(f"/proc/{pid}/task") or len(os.listdir(f"/proc/{pid}/task")) < 2, WITHIN_S)

    def test_who_left_everything_behind_is_shown_as_foreign(self):
        if not ROOT:
            self.skipTest("only root can take the slice's files out of its view")
        machine = self.machine()
        process = machine.start(TESSERA, "run", "--mem", "1000", "--name", "leaver", "--", "sh", "-c",
                                f"exec 3<&0; (setsid unshare -m sh -c 'umount -l /run/tessera/policy; umount -l /run/tessera; "
                                f"{program('raw_static')} 3000 <&3 & exit' &); read line")
        self.says(process, "holding")
        (foreign,) = machine.json("ps")["foreign"]
        self.assertIn("raw_static 3000", foreign["command"])
        self.assertEqual(foreign["driver_bytes"], 3000 * MIB)

    @unittest.skipUnless(ROOT, "another user needs root")
    def test_who_left_everything_but_the_user_namespace_is_named(self):
        machine = UserMachine(SIM, TESSERA)
        machine.__enter__()
        self.addCleanup(machine.__exit__)
        raw = shutil.copy(program("raw_static"), machine.folder)
        process = machine.start(machine.tessera, "run", "--mem", "1000", "--name", "leaver", "--on-bypass", "kill", "--", "sh", "-c",
                                f"exec 3<&0; (setsid unshare -Urm sh -c 'mount -t tmpfs none /run/tessera; {raw} 3000 <&3 & exit' &); read line")
        self.says(process, "holding")
        ps = machine.json("ps")
        self.assertEqual({(f["slice"], f["kind"], f["command"]) for f in ps["findings"]},
                         {("leaver", kind, "raw_static") for kind in ("no-fence", "uncharged", "policy-replaced")})
        self.assertEqual(ps["foreign"], [])
        pid = ps["findings"][0]["pid"]
        wait_until("it is gone", lambda: gone(pid), WITHIN_S)

    @unittest.skipUnless(ROOT, "a root directory of its own needs root")
    def test_a_root_of_its_own_without_the_fence_is_named(self):
        # As a container in the container: another root file system has no preload of ours, but the same namespace.
        machine = self.machine()
        root = machine.folder + "/root"
        os.mkdir(root)
        script = (f"mount --rbind / {root} && umount -l {root}/etc && "
                  f"exec chroot {root} {sys.executable} {HOLDER} 1500")
        process = machine.start(TESSERA, "run", "--mem", "1000", "--name", "nested", "--", "sh", "-c", script)
        self.says(process, "holding")
        kinds = {finding["kind"] for finding in machine.json("ps")["findings"]}
        self.assertEqual(kinds, {"no-fence", "uncharged"})

    def test_a_stopped_culprit_that_is_continued_is_stopped_again(self):
        machine = self.machine()
        process = machine.start(TESSERA, "run", "--mem", "1000", "--name", "culprit", "--on-bypass", "pause", "--", program("raw"), "2000")
        self.says(process, "holding")
        pid = self.slice_of(machine, "culprit")["processes"][0]["pid"]
        for _ in range(2):
            wait_until("it is stopped", lambda: state_of(pid) == "T", WITHIN_S)
            os.kill(pid, signal.SIGCONT)
            wait_until("it goes on", lambda: state_of(pid) != "T", 5)


if __name__ == "__main__":
    main()
