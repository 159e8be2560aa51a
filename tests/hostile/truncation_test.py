"""A tenant that cuts and grows its ledger all the time: whoever reads it gets an answer, never a SIGBUS."""
import json
import sys
import unittest

from hostile import BOUND, TESSERA, Case, main

CUTS = """
import os, sys
path = "/run/tessera/ledger"
full = os.path.getsize(path)
print("cutting", flush=True)
while os.getppid() != 1:
    for length in (0, 100, 4096, 8192, full):
        os.truncate(path, length)
"""


class Truncation(Case):
    def test_nobody_who_reads_it_dies(self):
        machine = self.machine()
        neighbour = machine.hold(300, "--name", "neighbour", "--on-bypass", "kill")
        tenant = machine.start(TESSERA, "run", "--mem", "500", "--name", "tenant", "--", sys.executable, "-c", CUTS)
        self.says(tenant, "cutting")
        for look in range(10):
            for words in (("ps",), ("top", "-n", "1"), ("doctor",)):
                done = machine.cli(*words, "--output", "json")
                self.assertIn(done.returncode, (0, 2), (words, look, done.stderr))  # 2: doctor found the tenant
                json.loads(done.stdout)
        # The look of one that comes next, and a changed limit.
        self.assertEqual(machine.cli("run", "--mem", "100", "--", "true", timeout=BOUND).returncode, 0)
        self.assertEqual(machine.cli("limit", "tenant", "--mem", "400").returncode, 0)
        self.assert_untouched(machine, "neighbour", 300)
        self.assertIsNone(tenant.poll())
        tenant.kill()
        self.ends(neighbour)


if __name__ == "__main__":
    main()
