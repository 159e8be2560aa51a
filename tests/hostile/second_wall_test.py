"""The driver's own memory limit per cgroup, where it has one: it holds against programs that no library can stand before."""
import os
import sys
import unittest

from hostile import BOUND, HOLDER, ROOT, TESSERA, Case, main, program, wait_until

CGROUPS = [root for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if os.access(root + "/cgroup.procs", os.W_OK)]


@unittest.skipUnless(ROOT and CGROUPS, "only root with a cgroup v2 tree may raise the second wall")
class SecondWall(Case):
    def setUp(self):
        self.on = self.machine("a10g-limits")

    def start(self, *words, mib=1000, name="tenant"):
        return self.on.start(TESSERA, "run", "--mem", str(mib), "--name", name, "--", *words)

    def test_it_stands_and_is_named(self):
        process = self.start(sys.executable, HOLDER, "100")
        self.says(process, "holding")
        rows = {row["what"]: row["held"] for row in self.on.json("explain", "tenant")["guarantees"]}
        self.assertTrue(rows["second wall"])

    def test_against_programs_without_the_fence(self):
        for way in ("raw", "raw_static"):
            with self.subTest(way=way):
                self.says(self.start(program(way), "1001", name=way + "-over"), "out of memory")
                self.says(self.start(program(way), "900", name=way + "-under"), "holding")

    def test_against_many_processes_together(self):
        script = f"exec 3<&0; for i in 1 2 3 4 5 6; do {program('raw_static')} 300 <&3 & done; wait"
        process = self.start("sh", "-c", script)
        answers = sorted(process.stdout.readline().strip() for _ in range(6))
        self.assertEqual(answers, ["holding"] * 3 + ["out of memory"] * 3)

    def test_against_a_preload_that_root_took_away_and_a_private_policy(self):
        for name, words in (("unpreloaded", ("sh", "-c", f"mount --bind /dev/null /etc/ld.so.preload && exec {sys.executable} {HOLDER} 1500")),
                            ("deepbind", (sys.executable, "-c", DEEPBIND))):
            with self.subTest(way=name):
                self.says(self.start(*words, name=name), "out of memory")

    def test_a_new_namespace_and_a_new_session_leave_it_standing(self):
        process = self.start("setsid", "-w", "unshare", "-m", "sh", "-c", f"{program('raw_static')} 1500")
        self.says(process, "out of memory")

    def test_a_raised_limit_moves_it_and_it_goes_with_its_slice(self):
        process = self.start("sh", "-c", f"read line; exec {program('raw_static')} 1500")
        wait_until("the slice is there", lambda: self.on.json("ps")["slices"], BOUND)
        self.assertEqual(self.on.cli("limit", "tenant", "--mem", "2000").returncode, 0)
        process.stdin.write("go\n")
        process.stdin.flush()
        self.says(process, "holding")
        process.stdin.close()
        process.wait(timeout=BOUND)
        wait_until("the cgroup is gone", lambda: not self.cgroups("tenant"), BOUND)

    def cgroups(self, name):
        return [entry for root in CGROUPS if os.path.isdir(root + "/tessera") for entry in os.listdir(root + "/tessera")
                if entry.startswith(name)]

    def test_root_may_walk_out_of_it_and_is_then_named(self):
        # A cgroup holds whoever may not leave it. Root may: the driver's figures then tell.
        root = CGROUPS[-1]
        process = self.start("sh", "-c", f"echo $$ >{root}/cgroup.procs && exec {program('raw_static')} 1500")
        self.says(process, "holding")
        kinds = {finding["kind"] for finding in self.on.json("ps")["findings"]}
        self.assertEqual(kinds, {"no-fence", "uncharged"})


DEEPBIND = f"""
import ctypes, os
library = ctypes.CDLL(os.path.join({os.path.dirname(program("x"))!r}, "libdeep.so"), mode=8)
print({{2: "out of memory", 0: "holding"}}.get(library.HoldDeep(ctypes.c_size_t(1500 << 20))), flush=True)
"""

if __name__ == "__main__":
    main()
