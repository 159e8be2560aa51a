"""What the hostile cases have in common: the machine of the command line's tests, the programs of this folder, ledgers by hand."""
import glob
import json
import os
import re
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from machine import HOLDER, Machine, wait_until  # noqa: E402,F401

SIM, TESSERA, BUILD = map(os.path.abspath, sys.argv[1:4])
FENCE = os.path.join(os.path.dirname(os.path.dirname(TESSERA)), "lib", "libtessera.so")
MIB = 1 << 20
ROOT = os.geteuid() == 0
BOUND = 60  # seconds for anything that is waited for

# Offsets of docs/formats/slice-directory.md.
CARDS, CARD_STRIDE, SLOTS, SLOT_STRIDE = 512, 128, 8192, 1536
OWNER_PID_SHIFT, OWNER_START_SHIFT, LIVE = 3, 25, 1


def program(name):
    return os.path.join(BUILD, name)


def state_of(pid):
    """The state letter of a process, or "gone"."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"


def gone(pid):
    return state_of(pid) in ("gone", "Z", "X")


def start_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])


def owner_word(pid, state=LIVE):
    return start_ticks(pid) << OWNER_START_SHIFT | pid << OWNER_PID_SHIFT | state


class Case(unittest.TestCase):
    def machine(self, node="a10g"):
        machine = Machine(SIM, TESSERA, node)
        machine.__enter__()
        self.addCleanup(machine.__exit__)
        return machine

    def slice_of(self, machine, name):
        (found,) = [slice_ for slice_ in machine.json("ps")["slices"] if slice_["name"] == name]
        return found

    def directory(self, machine, name):
        for record in glob.glob(machine.folder + "/promises/slices/*/slice.json"):
            with open(record, encoding="utf-8") as file:
                if json.load(file)["name"] == name:
                    return os.path.dirname(record)
        raise AssertionError(f"no slice {name}")

    def ledger(self, machine, name):
        """Path of a slice's ledger outside, where a tenant's own programs reach the same file as /run/tessera/ledger."""
        (path,) = glob.glob(self.directory(machine, name) + "/**/ledger", recursive=True)
        return path

    def says(self, process, line):
        got = process.stdout.readline().strip()
        if got != line:
            process.kill()
            self.fail(f"{got!r} instead of {line!r}; stderr: {process.stderr.read()}")

    def ends(self, process, text=""):
        """Closes stdin and waits; answers what else came on stdout."""
        output, error = process.communicate(text, timeout=BOUND)
        self.assertEqual(process.returncode, 0, (output, error))
        return output

    def said(self, process):
        """What has come on stderr since it was asked last; the watcher writes there while the slice's command lives."""
        os.set_blocking(process.stderr.fileno(), False)
        text = b""
        try:
            while got := os.read(process.stderr.fileno(), 65536):
                text += got
        except BlockingIOError:
            pass
        return text.decode()

    def assert_untouched(self, machine, name, held_mib):
        """The neighbour is as it was: figures to the byte, nothing said about it, its process accused of nothing."""
        ps = machine.json("ps")
        (neighbour,) = [slice_ for slice_ in ps["slices"] if slice_["name"] == name]
        self.assertEqual(neighbour["remarks"], [])
        self.assertEqual(neighbour["cards"][0]["held_by_kind"]["linear"], held_mib * MIB)
        self.assertEqual([finding for finding in ps["findings"] if finding["slice"] == name], [])
        return ps


def slot(ledger, pid):
    """Index of the slot that names `pid`, in the bytes of a ledger."""
    for index in range(4096):
        (owner,) = struct.unpack_from("<Q", ledger, SLOTS + index * SLOT_STRIDE)
        if owner >> OWNER_PID_SHIFT & 0x3FFFFF == pid and owner & 7 == LIVE:
            return index
    raise AssertionError(f"no slot of pid {pid}")


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
