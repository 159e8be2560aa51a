"""What `make install` puts in place: two files, nothing of the simulated driver, and a folder that may be moved."""

import os
import subprocess
import unittest

from run_case import BOUND, HAS_FENCE, Case

BUILD = os.environ["RUN_TEST_BUILD"]
CMAKE = os.environ["RUN_TEST_CMAKE"]


class Install(Case):
    def test_two_files_that_find_each_other(self):
        prefix = self.folder + "/prefix"
        done = subprocess.run([CMAKE, "--install", BUILD, "--prefix", prefix], capture_output=True, text=True, timeout=BOUND)
        self.assertEqual(done.returncode, 0, done.stderr)
        files = sorted(os.path.relpath(os.path.join(folder, name), prefix) for folder, _, names in os.walk(prefix) for name in names)
        self.assertEqual(files, ["bin/tessera", "lib/tessera/libtessera.so"])
        moved = self.folder + "/moved here"
        os.rename(prefix, moved)
        self.ok(self.call([moved + "/bin/tessera", "run", "--mem", "100", "--require-fence", "--", "sh", "-c", HAS_FENCE]))
        # Nothing but the C and C++ libraries of the system is needed, from wherever it stands.
        for name in files:
            dynamic = self.ok(self.call(["readelf", "-d", f"{moved}/{name}"])).stdout
            self.assertNotIn("RPATH", dynamic)
            self.assertNotIn("RUNPATH", dynamic)
            self.assertNotIn(BUILD, dynamic)

    def test_a_missing_library_is_named(self):
        prefix = self.folder + "/prefix"
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", prefix], capture_output=True, check=True, timeout=BOUND)
        os.unlink(prefix + "/lib/tessera/libtessera.so")
        result = self.call([prefix + "/bin/tessera", "run", "--mem", "100", "--", "true"])
        self.assertEqual(result.returncode, 125)
        self.assertEqual(result.stderr, f"tessera run: fence library: '{prefix}/lib/tessera/libtessera.so' cannot be read: No such file or directory\n")
        self.assertEqual(self.slices(), [])


del Case

if __name__ == "__main__":
    unittest.main(verbosity=2)
