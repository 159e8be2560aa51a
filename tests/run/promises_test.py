"""What `tessera run` and `tessera limit` refuse, promise, give back and leave behind."""

import json
import os
import random
import re
import signal
import sys
import time
import unittest

from run_case import BOUND, TESSERA, Case


class Refusals(Case):
    def refused(self, code, pattern, words, **more):
        result = self.call(words, **more)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertRegex(result.stderr, pattern)
        self.assertEqual(self.slices(), [])

    def test_sizes(self):
        for value in ("0", "-1", "1.5", "8G", "8000mb", "huge", "", " 8", "99999999999999999999", "16777217"):
            legal = "N" if value == "" else "whole MiB from 1"
            field = re.escape(f"'{value}'")
            self.refused(2, rf"^tessera run: --mem: {field}.*{legal}", self.words("true", mem=value))
            self.assertFalse(os.path.exists(self.state))

    def test_values(self):
        for option, value, legal in (("--cores", "0", "1 to 100"), ("--cores", "101", "1 to 100"), ("--cores", "30%", "1 to 100"),
                                     ("--cards", "0", "1 to 16"), ("--priority", "urgent", "low or high"), ("--policy", "pack", "binpack or spread"),
                                     ("--on-bypass", "shoot", "report, pause or kill"), ("--name", "a/b", "a-z A-Z 0-9")):
            self.refused(2, rf"^tessera run: {option}: '{value}'.*{legal}", self.words("true", options=[option, value]))
            self.assertFalse(os.path.exists(self.state))

    def test_cards(self):
        self.refused(2, "--card: '9' is not a card of this machine: 0 ", self.words("true", options=["--card", "9"]))
        self.refused(2, "--card: 'GPU-x' is not a card", self.words("true", options=["--card", "GPU-x"]))
        self.refused(3, "card 2: not healthy: .*GPU is lost", self.words("true", options=["--card", "2"]))
        self.refused(2, "--mem: '1,001 MiB' is more than a card has", self.words("true", mem="1001"))
        self.refused(3, "no room for 3 cards", self.words("true", options=["--cards", "3"]))
        self.refused(2, "--cards: '4' is more than", self.words("true", options=["--cards", "4"]))

    def test_commands(self):
        self.refused(2, "command: missing", [TESSERA, "run", "--mem", "100"])
        self.refused(2, "command: missing", [TESSERA, "run", "--mem", "100", "--"])
        self.refused(127, "command: 'no-such-program' is not in PATH", self.words("no-such-program"))
        self.refused(127, "command: '/no/such' is not there", self.words("/no/such"))
        self.refused(126, "command: '/etc/passwd' may not be executed", self.words("/etc/passwd"))

    def test_a_file_that_is_no_program_leaves_nothing(self):
        path = self.folder + "/elf"
        with open(path, "wb") as text:
            text.write(b"\x7fELF\x02\x01\x01" + b"\0" * 200)
        os.chmod(path, 0o755)
        result = self.run_in_slice(path)
        self.assertEqual(result.returncode, 126)
        self.assertRegex(result.stderr, r"tessera run: command: '.*/elf': Exec format error\n$")
        self.assertEqual(self.slices(), [])

    def test_no_driver(self):
        self.refused(125, "driver: ", self.words("true"), env=dict(self.env, LD_LIBRARY_PATH=self.folder))
        self.assertFalse(os.path.exists(self.state))

    def test_a_driver_that_hangs(self):
        self.refused(125, "driver: ", self.words("true"), env=dict(self.env, TEST_NVML_HANG="init"))
        self.assertFalse(os.path.exists(self.state))

    def test_state_directories(self):
        self.refused(125, "--state: '/proc/nothing' cannot hold promises", [TESSERA, "--state", "/proc/nothing", *self.words("true")[1:]])
        self.refused(125, "TESSERA_STATE: 'relative' cannot hold promises: not an absolute path", self.words("true"),
                     env=dict(self.env, TESSERA_STATE="relative"))
        file = self.folder + "/file"
        open(file, "w").close()
        self.refused(125, "not a directory", self.words("true"), env=dict(self.env, TESSERA_STATE=file))

    def test_no_library(self):
        self.refused(125, "fence library: '/no/lib.so'", self.words("true", options=["--library", "/no/lib.so"]))

    def test_a_newer_slice_directory(self):
        os.makedirs(self.state + "/slices/0123456789abcdef")
        with open(self.state + "/slices/0123456789abcdef/slice.json", "w") as text:
            text.write('{"layout": 2}')
        result = self.run_in_slice("true")
        self.assertEqual(result.returncode, 125)
        self.assertRegex(result.stderr, r"^tessera run: slice directory '.*/0123456789abcdef' cannot be read.*layout 2, this tessera reads layout 1.*\n$")
        self.assertEqual(self.slices(), ["0123456789abcdef"])

    def test_dry_run_makes_nothing(self):
        result = self.ok(self.run_in_slice("true", options=["--dry-run"]))
        self.assertEqual(result.stdout, "card 0 (Test card 0): 100 MiB\n")
        answer = json.loads(self.run_in_slice("true", mem="900", options=["--dry-run", "-o", "json"]).stdout)
        self.assertTrue(answer["fits"])
        self.assertEqual(answer["cards"][0]["memory_bytes"], 900 << 20)
        self.assertFalse(os.path.exists(self.state))
        self.assertEqual(self.run_in_slice("true", mem="1001", options=["--dry-run"]).returncode, 2)


class Promises(Case):
    def test_many_at_once_never_exceed_the_card(self):
        started = [self.start("sh", "-c", "echo ready; exec cat", mem="300", options=["--card", "0"]) for _ in range(9)]
        answers = [process.stdout.readline() for process in started]
        self.assertEqual(answers.count("ready\n"), 3, answers)
        for process, answer in zip(started, answers):
            if not answer:
                self.assertEqual(process.wait(timeout=BOUND), 3)
                self.assertIn("free 100 MiB of 1,000 MiB (3 slices)", process.stderr.read())

    def test_given_back_when_the_program_ends_or_is_killed(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            process = self.started(mem="1000", options=["--card", "0"])
            self.assertEqual(self.run_in_slice("true", mem="1", options=["--card", "0"]).returncode, 3)
            process.send_signal(number)
            process.wait(timeout=BOUND)
            self.ok(self.run_in_slice("true", mem="1000", options=["--card", "0"]))

    def test_a_child_that_outlives_its_parent_keeps_the_promise(self):
        # A shell gives /dev/null to what it starts behind itself, unless told otherwise.
        process = self.start("sh", "-c", "exec 3<&0; cat <&3 & exit 0", mem="1000", options=["--card", "0"])
        process.wait(timeout=BOUND)
        self.assertEqual(self.run_in_slice("true", mem="1", options=["--card", "0"]).returncode, 3)
        process.stdin.close()
        self.assertEqual(process.stdout.read(), "")  # the child has ended
        deadline = time.monotonic() + BOUND
        while self.run_in_slice("true", mem="1000", options=["--card", "0"]).returncode != 0:
            self.assertLess(time.monotonic(), deadline)

    def test_names(self):
        self.started(options=["--name", "chat"])
        result = self.run_in_slice("true", options=["--name", "chat"])
        self.assertEqual(result.returncode, 2)
        self.assertIn("--name: 'chat' is taken by a live slice of yours", result.stderr)

    def test_spread_and_cards(self):
        self.started(mem="100", options=["--card", "0"])
        for policy, card in (("binpack", 0), ("spread", 1)):
            result = self.run_in_slice("true", options=["--dry-run", "--policy", policy])
            self.assertIn(f"card {card} ", result.stdout)


class Kills(Case):
    def test_killed_at_any_instant(self):
        draw = random.Random(7)
        killed = 0
        for _ in range(60):
            process = self.start("true", mem="600")
            time.sleep(draw.random() * 0.06)
            process.kill()
            killed += process.wait(timeout=BOUND) == -signal.SIGKILL
            process.communicate()
        self.assertGreater(killed, 0)
        process = self.started(mem="1000", options=["--card", "0"])
        self.assertEqual(len(self.slices()), 1)


class Limit(Case):
    def limit(self, *words):
        return self.call([TESSERA, "limit", *words])

    READ_LIMIT = ("import struct,sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
                  "text=open('/run/tessera/policy','rb').read()\nprint(struct.unpack_from('<Q', text, 512+16)[0] >> 20)")

    def test_in_force_without_a_restart(self):
        process = self.start(sys.executable, "-c", self.READ_LIMIT, options=["--name", "chat"])
        self.assertEqual(process.stdout.readline(), "ready\n")
        result = self.ok(self.limit("chat", "--mem", "700"))
        self.assertRegex(result.stdout, r"^chat on GPU-.*: 100 MiB -> 700 MiB\n$")
        output, _ = process.communicate("\n", timeout=BOUND)
        self.assertEqual(output, "700\n")

    def test_refusals(self):
        self.started(mem="400", options=["--name", "chat", "--card", "0"])
        self.started(mem="500", options=["--name", "other", "--card", "0"])
        for words, code, pattern in ((["chat", "--mem", "501"], 3, "asked 501 MiB, free 500 MiB of 1,000 MiB"),
                                     (["chat", "--mem", "0"], 2, "--mem: '0' is not legal"),
                                     (["chat", "--mem", "2000"], 2, "the whole card has 1,000 MiB"),
                                     (["nobody", "--mem", "1"], 1, "NAME: 'nobody' is no live slice; live: chat, other"),
                                     (["chat"], 2, "nothing to change")):
            result = self.limit(*words)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (code, 1), result.stderr)
            self.assertRegex(result.stderr, pattern)

    def test_json(self):
        self.started(options=["--name", "chat"])
        answer = json.loads(self.ok(self.limit("chat", "--mem", "5", "--cores", "20", "--priority", "high", "-o", "json")).stdout)
        self.assertEqual(answer["cards"][0]["memory_bytes"], 5 << 20)
        self.assertEqual(answer["cards"][0]["held_bytes"], 0)
        self.assertEqual((answer["cards"][0]["cores"], answer["priority"]), (20, "high"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
