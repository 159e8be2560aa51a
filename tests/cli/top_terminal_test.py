"""`tessera top` in a real terminal (tmux): what is on the screen, resizing, and that the terminal comes back.
top_terminal_test.py TESSERA_SIM TESSERA"""
import os
import shlex
import subprocess
import sys
import unittest

from machine import Machine, wait_until

SIM, TESSERA = sys.argv[1:3]


class Terminal:
    """One tmux server of its own, so that nobody else's is touched."""

    def __init__(self, folder, columns, rows):
        self.socket = folder + "/tmux"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "env", "PS1=ready$ ", "LC_ALL=C.UTF-8",
                  "TERM=screen-256color", "bash", "--norc")

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *words], check=True, capture_output=True, text=True).stdout

    def type(self, text):
        self.tmux("send-keys", text, "Enter")

    def key(self, name):
        self.tmux("send-keys", name)

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], check=False, capture_output=True)


class Top(unittest.TestCase):
    def setUp(self):
        self.machine = Machine(SIM, TESSERA)
        self.machine.__enter__()
        self.addCleanup(self.machine.__exit__)
        self.terminal = Terminal(self.machine.folder, 80, 24)
        self.addCleanup(self.terminal.close)
        self.machine.hold(2000, "--name", "chat", slice_mib=8000)
        self.terminal.type("export TESSERA_STATE=" + shlex.quote(self.machine.environment["TESSERA_STATE"]))
        self.terminal.type("clear; echo before")
        self.terminal.type(shlex.join(self.machine.command(TESSERA, "top", "--interval", "1")))
        wait_until("a frame", lambda: "q or Ctrl-C leaves" in self.terminal.screen(), 20)

    def comes_back(self):
        wait_until("the shell's screen", lambda: self.terminal.screen().rstrip().endswith("ready$"), 10)
        self.assertIn("before", self.terminal.screen(), "the screen from before is there again")
        self.terminal.type("stty -a | tr ';' '\\n' | grep -c -- '-icanon\\|-echo ' ; echo status")
        wait_until("an answer", lambda: "status\n" in self.terminal.screen().split("echo status")[-1] + "\n", 10)
        self.assertIn("\n0\nstatus", self.terminal.screen(), "echo and line editing are on again")

    def test_the_screen(self):
        screen = self.terminal.screen()
        print(screen)
        self.assertIn("NVIDIA A10G", screen)
        for word in ("promised", "held", "driver", "chat", "8,000"):
            self.assertIn(word, screen)
        self.assertIn("\u2588", screen, "bars")
        self.assertNotIn("\x1b", screen)
        self.terminal.key("q")
        self.comes_back()

    def test_it_follows_the_window(self):
        self.terminal.tmux("resize-window", "-x", "120", "-y", "30")
        wait_until("a wider frame", lambda: any(len(line) > 80 for line in self.terminal.screen().splitlines()), 10)
        self.terminal.tmux("resize-window", "-x", "50", "-y", "8")
        wait_until("a small frame", lambda: "card 0  held " in self.terminal.screen(), 10)
        self.assertTrue(all(len(line) <= 50 for line in self.terminal.screen().splitlines()))
        self.assertRegex(self.terminal.screen(), r"chat .*/    8,000 live")
        self.terminal.tmux("resize-window", "-x", "50", "-y", "4")
        wait_until("a tiny frame", lambda: "more lines" in self.terminal.screen(), 10)
        self.terminal.tmux("resize-window", "-x", "80", "-y", "24")
        self.terminal.key("C-c")
        self.comes_back()

    def test_nothing_flickers(self):
        # What is drawn on an unchanged screen never clears it: no erased line shows between two frames.
        log = self.machine.folder + "/bytes"
        self.terminal.tmux("pipe-pane", "-o", "cat >" + shlex.quote(log))
        wait_until("three frames", lambda: os.path.exists(log) and open(log, "rb").read().count(b"\x1b[H") >= 3, 20)
        self.terminal.tmux("pipe-pane")
        with open(log, "rb") as file:
            drawn = file.read()
        self.assertNotIn(b"\x1b[2J", drawn)
        self.assertNotIn(b"\x1b[H\x1b[J", drawn)
        # Each line is written before its rest is erased, and a frame ends with the erasing of what is below.
        for frame in drawn.split(b"\x1b[H")[1:-1]:
            self.assertTrue(frame.endswith(b"\x1b[J"), frame[-40:])
            for line in frame.split(b"\r\n"):
                self.assertFalse(line.startswith(b"\x1b[K") and line.rstrip(b"\r") != b"\x1b[K", line)
        self.terminal.key("q")
        self.comes_back()

    def test_sigterm_gives_the_terminal_back(self):
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                with open(f"/proc/{entry}/environ", "rb") as file:
                    ours = self.machine.folder.encode() in file.read()
            except OSError:
                continue
            if ours and words[0] == TESSERA.encode() and b"top" in words:
                os.kill(int(entry), 15)
        self.comes_back()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
