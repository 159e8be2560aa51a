"""Honest programs in a pid namespace of their own, as containers and test runners make them: put to their slice, and accused of nothing."""
import sys
import time
import unittest

from hostile import HOLDER, MIB, ROOT, TESSERA, Case, main


@unittest.skipUnless(ROOT, "a pid namespace without a user namespace needs root")
class PidNamespace(Case):
    def holding(self, machine, *words, name, mib):
        process = machine.start(TESSERA, "run", "--mem", "2000", "--name", name, "--on-bypass", "kill", "--", *words, sys.executable,
                                HOLDER, str(mib))
        self.says(process, "holding")
        return process

    def test_they_are_of_their_slice_and_accused_of_nothing(self):
        machine = self.machine()
        one = self.holding(machine, "unshare", "-pf", "--mount-proc", name="one", mib=600)
        # And with a second one inside the first.
        deep = self.holding(machine, "unshare", "-pf", "--mount-proc", "unshare", "-pf", "--mount-proc", name="deep", mib=800)
        plain = machine.hold(300, "--name", "plain")
        deadline = time.monotonic() + 13  # a watcher acts within 11 s
        while True:
            ps = machine.json("ps")
            self.assertEqual(ps["findings"], [])
            self.assertEqual(ps["foreign"], [])
            for name, mib in (("one", 600), ("deep", 800), ("plain", 300)):
                (slice_,) = [slice_ for slice_ in ps["slices"] if slice_["name"] == name]
                self.assertEqual(slice_["remarks"], [], name)
                self.assertEqual(slice_["cards"][0]["held_by_kind"]["linear"], mib * MIB, name)
                shown = [process for process in slice_["processes"] if process["driver_bytes"] != [None]]
                self.assertEqual(len(shown), 1, (name, slice_["processes"]))
                self.assertIn(f"holder.py {mib}", shown[0]["command_line"])
                self.assertGreaterEqual(shown[0]["driver_bytes"][0], mib * MIB)
                self.assertIsNotNone(shown[0]["slot"], "its slot is found across the namespaces")
            if time.monotonic() > deadline:
                break
            time.sleep(1)
        levels = {check["id"]: check["level"] for check in machine.json("doctor")["checks"]}
        self.assertEqual(levels["bypass"], "ok")
        for process in (one, deep, plain):
            self.assertIsNone(process.poll(), "it lives: nobody killed it")
            self.ends(process)


if __name__ == "__main__":
    main()
