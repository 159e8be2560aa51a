"""What the tests of `tessera run` and `tessera limit` have in common: the programs, a state directory of each test's own, a slice to start."""

import atexit
import os
import shutil
import subprocess
import tempfile
import time
import unittest

ROOT = os.geteuid() == 0


def for_all_users():
    """The programs under test where other users can start them too: a clone may stand in a closed home."""
    folder = tempfile.mkdtemp(prefix="tessera-programs-")
    atexit.register(shutil.rmtree, folder, True)
    os.chmod(folder, 0o755)
    places = {"TESSERA": "bin/tessera", "FENCE": "lib/tessera/libtessera.so", "STATIC": "bin/static_program"}
    for name, to in places.items():
        os.makedirs(os.path.dirname(f"{folder}/{to}"), exist_ok=True)
        shutil.copy(os.environ["RUN_TEST_" + name], f"{folder}/{to}")
    shutil.copytree(os.environ["RUN_TEST_NVML"], folder + "/nvml")
    return *(f"{folder}/{to}" for to in places.values()), folder + "/nvml"


TESSERA, FENCE, STATIC, NVML = for_all_users()
BOUND = 60  # seconds for anything; nothing here takes more than a few
HAS_FENCE = "grep -q /libtessera.so /proc/self/maps"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tessera-run-")
        os.chmod(self.folder, 0o755)
        self.state = self.folder + "/state"
        self.env = dict(os.environ, LD_LIBRARY_PATH=NVML, TESSERA_STATE=self.state)
        for name in ("TESSERA_SLICE_DIR", "LD_PRELOAD", "XDG_RUNTIME_DIR"):
            self.env.pop(name, None)

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def words(self, *words, mem="100", options=()):
        return [TESSERA, "run", "--mem", mem, *options, "--", *words]

    def call(self, words, **more):
        more.setdefault("env", self.env)
        return subprocess.run(words, capture_output=True, text=True, timeout=BOUND, **more)

    def run_in_slice(self, *words, mem="100", options=(), **more):
        return self.call(self.words(*words, mem=mem, options=options), **more)

    def start(self, *words, mem="100", options=(), **more):
        more.setdefault("env", self.env)
        process = subprocess.Popen(self.words(*words, mem=mem, options=options), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.wait(timeout=BOUND)
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()

    def started(self, *words, **more):
        """A program that said "ready" and waits for its stdin to close; then it is `words`."""
        process = self.start("sh", "-c", "echo ready; read line; exec " + (" ".join(words) or "true"), **more)
        line = process.stdout.readline()
        if line != "ready\n":
            self.fail(process.stderr.read())
        return process

    def slices(self):
        try:
            return os.listdir(self.state + "/slices")
        except FileNotFoundError:
            return []

    def all_is_given_back(self):
        """What has ended is removed by whoever comes next, its watcher for one."""
        deadline = time.monotonic() + BOUND
        while self.slices():
            self.assertLess(time.monotonic(), deadline, self.slices())
            time.sleep(0.1)

    def ok(self, result):
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        return result
