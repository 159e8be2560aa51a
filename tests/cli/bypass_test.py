"""Processes that go round the fence are found within 30 s, named, and answered. bypass_test.py TESSERA_SIM TESSERA"""
import os
import signal
import sys
import time
import unittest

from machine import HOLDER, Machine, wait_until

SIM, TESSERA = sys.argv[1:3]
MIB = 1 << 20
# As root inside a slice that root started, the preload can be taken away: a case that user space cannot prevent.
UNFENCED = f"mount --bind /dev/null /etc/ld.so.preload && exec {sys.executable} {HOLDER} "


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"


@unittest.skipUnless(os.geteuid() == 0, "only root can take its own preload away")
class Bypass(unittest.TestCase):
    def machine(self, node="a10g"):
        machine = Machine(SIM, TESSERA, node)
        machine.__enter__()
        self.addCleanup(machine.__exit__)
        return machine

    def unfenced(self, machine, mib, *options):
        return machine.start(TESSERA, "run", "--mem", "1000", "--name", "cheat", *options, "--", "sh", "-c", UNFENCED + str(mib))

    def test_it_is_found_on_demand(self):
        machine = self.machine()
        self.assertEqual(self.unfenced(machine, 5000).stdout.readline().strip(), "holding")
        ps = machine.json("ps")
        kinds = {finding["kind"] for finding in ps["findings"]}
        self.assertEqual(kinds, {"uncharged", "no-fence"})
        self.assertTrue(all(finding["slice"] == "cheat" and finding["pid"] for finding in ps["findings"]))
        self.assertEqual(ps["slices"][0]["fence"], "hole")
        doctor = machine.cli("doctor")
        self.assertEqual(doctor.returncode, 2)
        self.assertIn("a process goes round its fence", doctor.stdout)

    def test_it_is_reported_within_30_seconds(self):
        process = self.unfenced(self.machine(), 5000)
        self.assertEqual(process.stdout.readline().strip(), "holding")
        os.set_blocking(process.stderr.fileno(), False)
        said = ""

        def reported():
            nonlocal said
            try:
                said += os.read(process.stderr.fileno(), 65536).decode()
            except BlockingIOError:
                return False
            return "without the fence" in said

        wait_until("a report on stderr", reported, 30)
        self.assertIn("slice cheat: pid ", said)

    def test_it_is_killed_where_the_policy_says_so(self):
        process = self.unfenced(self.machine(), 5000, "--on-bypass", "kill")
        self.assertEqual(process.stdout.readline().strip(), "holding")
        # Its own death by the signal, or what a parent of it makes of that.
        self.assertIn(process.wait(timeout=30), (-signal.SIGKILL, 128 + signal.SIGKILL))

    def test_it_is_stopped_where_the_policy_says_so(self):
        machine = self.machine()
        process = self.unfenced(machine, 5000, "--on-bypass", "pause")
        self.assertEqual(process.stdout.readline().strip(), "holding")
        pid = machine.json("ps")["slices"][0]["processes"][0]["pid"]
        wait_until("the process is stopped", lambda: state_of(pid) == "T", 30)
        os.kill(pid, signal.SIGKILL)

    def test_a_forged_ledger_is_found(self):
        machine = self.machine()
        process = machine.start(TESSERA, "run", "--mem", "8000", "--name", "forger", "--", "sh", "-c",
                                # A background job of sh reads /dev/null unless told otherwise.
                                f"exec 3<&0; {sys.executable} {HOLDER} 4000 <&3 & sleep 2; "
                                "dd if=/dev/zero of=/run/tessera/ledger bs=1024 seek=8 count=64 conv=notrunc status=none; wait")
        self.assertEqual(process.stdout.readline().strip(), "holding")
        wait_until("the forgery is found", lambda: any(
            finding["kind"] == "uncharged" for finding in machine.json("ps")["findings"]), 30)

    def test_a_truncated_ledger_is_said_and_hurts_nobody_else(self):
        machine = self.machine()
        machine.hold(1000, "--name", "neighbour")
        process = machine.start(TESSERA, "run", "--mem", "8000", "--name", "vandal", "--", "sh", "-c",
                                "truncate -s 7 /run/tessera/ledger; echo cut; read line")
        self.assertEqual(process.stdout.readline().strip(), "cut")
        ps = machine.json("ps")
        slices = {slice_["name"]: slice_ for slice_ in ps["slices"]}
        self.assertEqual(slices["neighbour"]["remarks"], [])
        self.assertEqual(slices["neighbour"]["cards"][0]["held_by_kind"]["linear"], 1000 * MIB)
        self.assertIn("vandal", slices)
        self.assertTrue(slices["vandal"]["remarks"])

    def test_the_second_wall_stops_what_goes_round_the_fence(self):
        if not any(os.access(path, os.W_OK) for path in ("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs")):
            self.skipTest("no cgroup v2 tree that may be written")
        machine = self.machine("a10g-limits")
        process = self.unfenced(machine, 5000)
        self.assertEqual(process.stdout.readline().strip(), "out of memory")
        # What is inside its limit is granted as ever, and a raised limit moves the wall too.
        holder = machine.hold(2000, "--name", "chat", slice_mib=3000)
        explained = machine.json("explain", "chat")
        self.assertTrue({row["what"]: row["held"] for row in explained["guarantees"]}["second wall"])
        self.assertEqual(machine.cli("limit", "chat", "--mem", "9000").returncode, 0)
        # A cgroup bears the id of its slice: it is there while the slice lives, and goes with it.
        slice_id, = [row["id"] for row in machine.json("ps")["slices"] if row["name"] == "chat"]
        cgroups = [f"{root}/tessera/{slice_id}" for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")]
        self.assertTrue(any(os.path.isdir(path) for path in cgroups))
        holder.stdin.close()
        holder.wait(timeout=10)
        for _ in range(50):
            if not any(os.path.isdir(path) for path in cgroups):
                break
            time.sleep(0.2)
        self.assertEqual([path for path in cgroups if os.path.isdir(path)], [], "the cgroup goes with its slice")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
