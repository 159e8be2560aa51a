"""A simulated machine for the tests of the command line: a node, a state directory, programs on it."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "holder.py")


class Machine:
    """Use as a context manager; every process started by it is ended by it, by its own handle."""

    def __init__(self, sim, tessera, node="a10g"):
        self.sim, self.tessera, self.node = sim, tessera, node

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="tessera-cli-")
        self.started = []
        self.environment = dict(os.environ, TESSERA_STATE=self.folder + "/promises")
        return self

    def __exit__(self, *_):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *words):
        return [self.sim, "run", "--node", self.node, "--state", self.folder + "/node", "--", *words]

    def run(self, *words, timeout=60):
        return subprocess.run(self.command(*words), env=self.environment, capture_output=True, text=True, timeout=timeout)

    def cli(self, *words, timeout=60):
        return self.run(self.tessera, *words, timeout=timeout)

    def json(self, *words):
        answer = self.cli(*words, "--output", "json")
        assert answer.stdout, answer.stderr
        return json.loads(answer.stdout)

    def start(self, *words):
        process = subprocess.Popen(self.command(*words), env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def hold(self, mib, *options, slice_mib=None):
        """A slice whose program holds `mib` when this returns."""
        process = self.start(self.tessera, "run", "--mem", str(slice_mib or mib + 1000), *options, "--", sys.executable, HOLDER,
                             str(mib))
        line = process.stdout.readline().strip()
        assert line == "holding", (line, process.stderr.read() if not line else "")
        return process


def wait_until(what, condition, seconds):
    """Bounded wait for a condition that another process brings about."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {what}")
