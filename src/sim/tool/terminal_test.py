#!/usr/bin/env python3
"""terminal_test.py TESSERA_SIM: the tool between a terminal and a program, with a mount namespace and without, as root and as
another user. Prints one line per failed check; exit status 1 if any failed."""
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time

NOBODY = 65534
LONGEST_S = 30
FAILED = []


def check(what, good, detail=""):
    if not good:
        FAILED.append(what)
        print(f"FAILED {what}: {detail}")


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command, user):
        self.said = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            if user != os.geteuid():
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            os.chdir("/")
            environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "$ ", "HISTFILE": "", "HOME": "/"}
            os.execvpe(command[0], command, environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))

    def until(self, pattern):
        """Reads on until `pattern` was said; whether it was."""
        end = time.monotonic() + LONGEST_S
        while not (found := re.search(pattern, self.said)):
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                return False
            try:
                piece = os.read(self.fd, 4096)
            except OSError:  # the last user of the terminal is gone
                piece = b""
            if not piece:
                return False
            self.said += piece.decode(errors="replace")
        self.said = self.said[found.end():]
        return True

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def end(self):
        """The exit status, negative for a signal; a program that does not end is killed and gives None."""
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0)[0]:  # a full terminal would keep it from ending
                try:
                    self.said += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        return None


def test(name, run, user):
    def on_terminal(*command):
        return Terminal([*run, *command], user)

    terminal = on_terminal("sh", "-c", "test -t 0 && test -t 1 && test -t 2 && tty && stty size; exit 7")
    check(f"{name}: is a terminal", terminal.until(r"/dev/pts/\d+\r\n33 77\r\n"), terminal.said)
    check(f"{name}: exit status", (got := terminal.end()) == 7, got)

    terminal = on_terminal("sh", "-c", "read line && echo \"read $line\"")
    terminal.type("typed\n")
    check(f"{name}: what is typed arrives", terminal.until("read typed"), terminal.said)
    check(f"{name}: ends", terminal.end() == 0)

    terminal = on_terminal("sh", "-c", "echo ready; exec sleep 60")
    check(f"{name}: started", terminal.until("ready"), terminal.said)
    terminal.type("\x03")
    check(f"{name}: Ctrl-C ends it by the signal", (got := terminal.end()) == -signal.SIGINT, got)

    terminal = on_terminal("sh", "-c", "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done")
    check(f"{name}: trap set", terminal.until("ready"), terminal.said)
    terminal.type("\x03")
    check(f"{name}: Ctrl-C is the program's to handle", terminal.until("caught") and terminal.end() == 5, terminal.said)

    # A shell inside has its own jobs.
    terminal = on_terminal("bash", "--norc", "--noprofile", "-i")
    check(f"{name}: shell starts", terminal.until(r"\$ "), terminal.said)
    terminal.type("sh -c 'echo re''ady; exec sleep 60'\n")
    check(f"{name}: shell starts a job", terminal.until("ready"), terminal.said)
    terminal.type("\x1a")
    check(f"{name}: Ctrl-Z stops the shell's job", terminal.until("Stopped"), terminal.said)
    terminal.type("fg\n")
    check(f"{name}: fg", terminal.until("sleep 60"), terminal.said)
    time.sleep(0.3)  # until the shell has given it the terminal
    terminal.type("\x03")
    terminal.type("echo status=$?; exit 9\n")
    check(f"{name}: the job's status", terminal.until("status=130"), terminal.said)
    check(f"{name}: the shell's status", (got := terminal.end()) == 9, got)

    # It is a job of a shell outside.
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], user)
    check(f"{name}: shell outside starts", terminal.until(r"\$ "), terminal.said)
    terminal.type(" ".join([*run, "sh", "-c", "'echo re''ady; exec sleep 60'"]) + "\n")
    check(f"{name}: job started", terminal.until("ready"), terminal.said)
    terminal.type("\x1a")
    check(f"{name}: Ctrl-Z stops it", terminal.until("Stopped"), terminal.said)
    terminal.type("fg\n")
    time.sleep(0.3)
    terminal.type("\x03")
    terminal.type("echo status=$?; exit 3\n")
    check(f"{name}: its status for the shell", terminal.until("status=130"), terminal.said)
    check(f"{name}: shell outside ends", (got := terminal.end()) == 3, got)

    terminal = on_terminal("script", "-qec", "echo on $(tty)", "/dev/null")
    check(f"{name}: new terminals can be opened", terminal.until(r"on [/a-z-]+/pts/\d+") and terminal.end() == 0, terminal.said)


def main():
    tool = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        users = [os.geteuid()]
        if os.geteuid() == 0:
            users.append(NOBODY)
            public = pathlib.Path(folder) / "public"
            shutil.copytree(pathlib.Path(tool).parent.parent, public)
            os.chmod(folder, 0o755)
            tool = str(public / "bin/tessera-sim")
        for user in users:
            for mode in ([], ["--no-namespace"]):
                test(f"uid {user}{' without namespace' if mode else ''}", [tool, "run", *mode, "--"], user)
    print(f"{len(FAILED)} failed")
    sys.exit(1 if FAILED else 0)


main()
