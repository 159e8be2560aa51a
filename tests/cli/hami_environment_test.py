"""HAMi's variables where there is no policy: what is legal limits, what is not refuses to start CUDA with one line that names
variable, value and what is legal, and is never "no limit". hami_environment_test.py TESSERA_SIM TESSERA"""
import os
import subprocess
import sys
import unittest

from machine import HOLDER, Machine

SIM, TESSERA = sys.argv[1:3]
FENCE = os.path.dirname(os.path.dirname(TESSERA)) + "/lib/libtessera.so"
MEMORY = "<integer>[k|m|g]"
CORES = "0 to 100"


class HamiEnvironment(unittest.TestCase):
    def setUp(self):
        self.machine = Machine(SIM, TESSERA)
        self.machine.__enter__()
        self.addCleanup(self.machine.__exit__)

    def hold(self, mib, **variables):
        # The file that HAMi would share stands in this machine's folder, so that it goes with the test.
        variables.setdefault("CUDA_DEVICE_MEMORY_SHARED_CACHE", self.machine.folder + "/hami.cache")
        environment = dict(self.machine.environment, **variables)
        words = self.machine.command("env", "LD_PRELOAD=" + FENCE, sys.executable, HOLDER, str(mib))
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)

    def test_legal_values_limit(self):
        for variable, value in (("CUDA_DEVICE_MEMORY_LIMIT_0", "2000m"), ("CUDA_DEVICE_MEMORY_LIMIT", "2000M"), ("CUDA_DEVICE_MEMORY_LIMIT_0", "2g"),
                                ("CUDA_DEVICE_MEMORY_LIMIT", "2097152000")):
            self.assertEqual(self.hold(1000, **{variable: value}).stdout, "holding\n", value)
            refused = self.hold(2500, **{variable: value})
            self.assertEqual((refused.returncode, refused.stdout, refused.stderr), (3, "out of memory\n", ""), value)

    def test_bad_values_refuse(self):
        values = ("0", "-1g", "1.5g", "2GB", "2000mb", "010g", "99999999999999999999", "300000g", "much", "", " 2g")
        cases = [("CUDA_DEVICE_MEMORY_LIMIT_0", value, MEMORY) for value in values]
        cases += [(name, "2GB", MEMORY) for name in ("CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_15")]
        cases += [("CUDA_DEVICE_SM_LIMIT", value, CORES) for value in ("-1", "101", "30%", "1.5", "")]
        cases += [("CUDA_DEVICE_SM_LIMIT_0", "half", CORES)]
        for name, value, legal in cases:
            with self.subTest(name=name, value=value):
                done = self.hold(1000, **{name: value})
                self.assertEqual((done.returncode, done.stdout.startswith("cuInit: ")), (4, True), done.stdout)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                for part in (name + "=", f"'{value}'", legal):
                    self.assertIn(part, done.stderr)

    def test_a_policy_stands_above_the_environment(self):
        environment = dict(self.machine.environment, CUDA_DEVICE_MEMORY_LIMIT_0="20000m")
        words = self.machine.command(TESSERA, "run", "--mem", "1500", "--", sys.executable, HOLDER, "2000")
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stdout), (3, "out of memory\n"), done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
