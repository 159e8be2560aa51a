"""A tenant whose file system takes every question and answers none: nobody who looks at it waits with it."""
import os
import re
import unittest

from hostile import BOUND, ROOT, TESSERA, Case, main, program, wait_until


@unittest.skipUnless(ROOT and os.path.exists("/dev/fuse"), "needs root and /dev/fuse")
class Deaf(Case):
    def deaf(self, machine, *words):
        process = machine.start(TESSERA, "run", "--mem", "1000", "--name", "deaf", "--", *words)
        line = process.stdout.readline().strip()
        if line == "no":
            self.skipTest(process.stdout.readline())
        self.assertEqual(line, "deaf", process.stderr.read() if not line else "")
        return process

    def looks_end(self, machine):
        """Everything that looks at all processes ends, and is right about the neighbour; Machine bounds each wait."""
        ps = self.assert_untouched(machine, "neighbour", 300)
        self.assertEqual({slice_["name"] for slice_ in ps["slices"]}, {"deaf", "neighbour"})
        machine.json("doctor")
        another = machine.cli("run", "--mem", "100", "--", "true")
        self.assertEqual((another.returncode, another.stderr), (0, ""))
        # The look that a dead slice is removed by.
        self.assertEqual({slice_["name"] for slice_ in machine.json("ps")["slices"]}, {"deaf", "neighbour"})
        return ps

    def test_one_mounted_over_the_slice_keeps_nobody_waiting(self):
        machine = self.machine()
        process = self.deaf(machine, program("deaf"), "over", "/run/tessera")
        machine.hold(300, "--name", "neighbour", "--on-bypass", "kill")
        ps = self.looks_end(machine)
        findings = {(finding["slice"], finding["kind"], finding["command"]) for finding in ps["findings"]}
        self.assertEqual(findings, {("deaf", "policy-replaced", "deaf")}, "what stands there is no policy of ours")
        # Its own watcher goes on looking.
        said = []

        def named():
            said.append(self.said(process))
            return re.search(r"slice deaf: pid \d+ \(deaf\) sees another policy", "".join(said))

        wait_until("the watcher names it", named, 30)

    def test_one_whose_launcher_is_gone_keeps_its_slice(self):
        machine = self.machine()
        script = f"(setsid {program('deaf')} over /run/tessera <&3 &) 3<&0; exec sleep 0.5"
        process = machine.start(TESSERA, "run", "--mem", "1000", "--name", "deaf", "--", "sh", "-c", f"exec 3<&0; {script}")
        line = process.stdout.readline().strip()
        if line == "no":
            self.skipTest(process.stdout.readline())
        self.assertEqual(line, "deaf")
        self.assertEqual(process.wait(BOUND), 0)
        self.assertEqual([slice_["name"] for slice_ in machine.json("ps")["slices"]], ["deaf"])
        process.stdin.close()
        wait_until("it is gone with its last process", lambda: machine.json("ps")["slices"] == [], 30)

    def test_one_behind_the_memory_of_a_process_keeps_nobody_waiting(self):
        machine = self.machine()
        folder = machine.folder + "/mounted"
        os.mkdir(folder)
        self.deaf(machine, program("deaf"), "args", folder)
        machine.hold(300, "--name", "neighbour", "--on-bypass", "kill")
        ps = self.looks_end(machine)
        self.assertEqual(ps["findings"], [])
        (deaf,) = [slice_ for slice_ in ps["slices"] if slice_["name"] == "deaf"]
        self.assertEqual({process["command"] for process in deaf["processes"]}, {"deaf"}, "by its name alone")


if __name__ == "__main__":
    main()
