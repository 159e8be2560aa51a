"""Honest programs whose figures are awkward are accused of nothing, by the watcher or on demand, and are not killed for it."""
import time

from hostile import BOUND, TESSERA, Case, main, program, wait_until

KINDS = ("threads", "fork", "exec", "contexts", "modules", "short", "pools", "headless")
# Long enough for three looks of every watcher.
SECONDS = 24


class Honest(Case):
    def test_nobody_is_accused(self):
        # One card each for two of them: what one does must not be laid at another's door either.
        machine = self.machine("node-8xa100")
        started = {}
        for kind in KINDS:
            started[kind] = machine.start(TESSERA, "run", "--mem", "6000", "--policy", "binpack", "--name", kind, "--on-bypass", "kill", "--",
                                          program("honest"), kind, str(SECONDS))
        wait_until("all have started", lambda: {slice_["name"] for slice_ in machine.json("ps")["slices"]} == set(KINDS), 20)
        looks = 0
        end = time.monotonic() + SECONDS - 6
        while time.monotonic() < end:
            ps = machine.json("ps")
            self.assertEqual(ps["findings"], [])
            for slice_ in ps["slices"]:
                self.assertEqual(slice_["remarks"], [], slice_["name"])
                self.assertNotEqual(slice_["fence"], "hole", slice_["name"])
            looks += 1
            time.sleep(0.5)
        self.assertGreater(looks, 3)
        for kind, process in started.items():
            with self.subTest(kind=kind):
                output, error = process.communicate(timeout=BOUND)
                self.assertEqual((process.returncode, output, error), (0, "done\n", ""))


if __name__ == "__main__":
    main()
