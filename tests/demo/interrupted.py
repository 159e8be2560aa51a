#!/usr/bin/env python3
"""interrupted.py DEMO: Ctrl-C at any moment ends the demo with one sentence and leaves nothing behind: no process, no file."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DEMO = sys.argv.pop(1)


def processes_of(folder):
    """Pids whose environment names the folder."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if folder.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass  # gone, or not ours
    return found


class Interrupted(unittest.TestCase):
    def interrupt_when(self, said, again=False):
        """Starts the demo, waits until it printed `said`, and presses Ctrl-C."""
        with tempfile.TemporaryDirectory() as folder:
            with subprocess.Popen([sys.executable, DEMO], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=dict(os.environ, TMPDIR=folder), start_new_session=True,
                                  preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)) as demo:
                text = ""
                while said not in text and demo.poll() is None:
                    text += demo.stdout.readline()
                self.assertIn(said, text)
                os.killpg(demo.pid, signal.SIGINT)
                if again:
                    time.sleep(0.2)
                    os.killpg(demo.pid, signal.SIGINT)
                text += demo.stdout.read()
            self.assertEqual(demo.returncode, 130, text)
            self.assertNotIn("Traceback", text)
            self.assertIn("The demo was interrupted", text)
            self.assertEqual(os.listdir(folder), [])
            end = time.monotonic() + 10
            while processes_of(folder) and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(processes_of(folder), [])

    def test_before_the_first_program(self):
        self.interrupt_when("Tessera lets several programs share")

    def test_while_programs_start(self):
        self.interrupt_when("tessera run --mem 8000")

    def test_while_one_takes_all_it_can(self):
        self.interrupt_when("2. The greedy one takes all it can")

    def test_twice_while_a_limit_changes(self):
        self.interrupt_when("$ tessera limit", again=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
