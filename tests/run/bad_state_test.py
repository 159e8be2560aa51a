"""A machine that is not as it should be (slice directories, state directories, driver, disk) and signals at any instant:
bad_input_case.py says what each refusal is."""

import os
import pty
import signal
import subprocess
import time
import unittest

from bad_input_case import AsAUser, BadCase, shown
from run_case import BOUND, ROOT, TESSERA


class BadState(BadCase):
    SAID_BY_ALL = (["run", "--mem", "100", "--", "true"], ["limit", "chat", "--mem", "5"], ["explain", "--mem", "100"])

    def broken_slice(self, write):
        folder = self.state + "/slices/0123456789abcdef"
        os.mkdir(folder)
        write(folder)
        return folder

    def check_broken(self, folder, *parts):
        self.refused(125, ["run", "--mem", "100", "--", "true"], folder, *parts)
        self.refused(1, ["explain", "--mem", "100"], folder, *parts)
        self.refused(1, ["limit", "chat", "--mem", "950"], folder, *parts)
        # What gives back needs no look at anybody else's promise.
        lowered = self.call([*self.PREFIX, TESSERA, "limit", "chat", "--mem", "5"])
        self.assertEqual((lowered.returncode, lowered.stderr), (0, ""))
        ps = self.call([*self.PREFIX, TESSERA, "ps"])
        self.assertEqual(ps.returncode, 1, "what cannot be read is a failure of ps too")
        self.assertIn("0123456789abcdef", ps.stdout)

    def test_a_slice_directory_of_a_newer_version(self):
        self.hold()

        def write(folder):
            with open(folder + "/slice.json", "w", encoding="utf-8") as file:
                file.write('{"layout": 2}')

        self.check_broken(self.broken_slice(write), "layout 2", "this tessera reads layout 1")

    def test_a_policy_of_a_newer_version(self):
        holder = self.hold()
        (name,) = self.slices()
        folder = f"{self.state}/slices/{name}"
        with open(folder + "/policy", "r+b") as file:
            file.seek(8)
            file.write((99).to_bytes(4, "little"))
        self.refused(125, ["run", "--mem", "10", "--", "true"], folder, "policy", "layout 99", "this tessera reads layout")
        self.refused(1, ["limit", "chat", "--mem", "5"], "layout 99")
        holder.stdin.close()

    def test_damaged_slice_directories(self):
        self.hold()
        for text in ("", "{", "[]", '{"layout": 1}', "\x00" * 100, "{" * 100000):
            def write(folder, text=text):
                with open(folder + "/slice.json", "w", encoding="utf-8") as file:
                    file.write(text)

            folder = self.broken_slice(write)
            self.check_broken(folder, "end its programs and remove it")
            os.unlink(folder + "/slice.json")
            os.rmdir(folder)

    def test_an_unreadable_slice_directory(self):
        if ROOT and not self.PREFIX:
            self.skipTest("root reads everything")
        self.hold()
        folder = self.broken_slice(lambda path: None)
        with open(folder + "/slice.json", "w", encoding="utf-8") as file:
            file.write("{}")
        os.chmod(folder + "/slice.json", 0)
        self.check_broken(folder, "Permission denied")
        os.chmod(folder, 0)
        self.check_broken(folder, "Permission denied")
        os.chmod(folder, 0o755)

    def test_state_directories(self):
        file = self.files + "/file"
        with open(file, "w", encoding="utf-8"):
            pass
        for value, part in (("relative", "not an absolute path"), (file, "not a directory"), ("/proc/nothing", "")):
            for how in ("--state", "TESSERA_STATE"):
                flag = ["--state", value] if how == "--state" else []
                env = dict(self.env, TESSERA_STATE=value) if how != "--state" else self.env
                self.refused(125, [*flag, "run", "--mem", "100", "--", "true"], f"{how}: '{value}'", part, env=env)
                if part:
                    for words in self.SAID_BY_ALL[1:]:
                        self.refused(1, [*flag, *words], f"{how}: '{value}'", part, env=env)

    def test_no_driver(self):
        self.hold()
        env = dict(self.env, LD_LIBRARY_PATH=self.files)
        for words, code in zip(self.SAID_BY_ALL, (125, 1, 1)):
            self.refused(code, words, "driver: ", "libnvidia-ml.so.1", env=env)
        ps = self.call([*self.PREFIX, TESSERA, "ps"], env=env)
        self.assertIn("chat", ps.stdout, "what was promised is shown without a driver too")
        self.assertIn("! driver: ", ps.stdout)

    def test_a_driver_that_hangs(self):
        self.hold()
        env = dict(self.env, TEST_NVML_HANG="init")
        for words, code in zip(self.SAID_BY_ALL, (125, 1, 1)):
            self.refused(code, words, "driver: ", "no answer", env=env)
        # One silent card does not take the others along.
        env = dict(self.env, TEST_NVML_HANG="1")
        self.refused(3, ["run", "--mem", "10", "--card", "1", "--", "true"], "card 1", "no answer", env=env)
        self.assertEqual(self.call([*self.PREFIX, *self.words("true", mem="10", options=["--card", "0"])], env=env).returncode, 0)

    def test_a_long_wait_is_told_to_who_sits_at_a_terminal(self):
        terminal, other = pty.openpty()
        self.addCleanup(os.close, terminal)
        process = subprocess.Popen([*self.PREFIX, *self.words("true")], env=dict(self.env, TEST_NVML_HANG="init"), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=other)
        os.close(other)
        self.assertEqual(process.wait(timeout=BOUND), 125)
        process.stdin.close()
        process.stdout.close()
        said = os.read(terminal, 4096).decode()
        self.assertRegex(said, r"^tessera: waiting for the driver, at most 10 s\r\ntessera run: driver: .*\r\n$")

    def test_a_file_size_limit(self):
        # A ledger is 6 MiB: `ulimit -f` counts blocks of 512 or 1,024 bytes.
        self.refused(125, ["run", "--mem", "100", "--", "true"], "state directory", "File too large",
                     prefix=("sh", "-c", 'ulimit -f 1000; exec "$@"', "sh"))

    def on_small_disk(self, options, script):
        """Mounts a file system over the state directory, for this call only, and answers what `script` said there."""
        mount = f"mount -t tmpfs -o {options} t {self.state} && mkdir -m 1777 {self.state}/slices && {script}"
        return self.call(["unshare", "-m", "--propagation", "private", "sh", "-ec", mount])

    @unittest.skipUnless(ROOT, "mounts need root")
    def test_a_full_disk(self):
        run = " ".join([*self.PREFIX, TESSERA, "run", "--mem", "100", "--", "true"])
        for size in ("4k", "16k", "64k", "1m", "6m"):
            result = self.on_small_disk(f"size={size},mode=1777", f"{run} || echo code $?; ls -A {self.state}/slices")
            self.assertEqual(result.stdout, "code 125\n", size + ": " + result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertRegex(result.stderr, "^tessera run: state directory: .*No space left on device")
        # No inode is left either.
        result = self.on_small_disk("size=20m,nr_inodes=4,mode=1777", f"{run} || echo code $?; ls -A {self.state}/slices")
        self.assertEqual(result.stdout, "code 125\n", result.stderr)

    @unittest.skipUnless(ROOT, "mounts need root")
    def test_a_read_only_state_directory(self):
        self.hold()
        for words, code in ((["run", "--mem", "10", "--", "true"], 125), (["limit", "chat", "--mem", "5"], 1)):
            script = f'mount --bind {self.state} {self.state} && mount -o remount,bind,ro {self.state} && exec "$@"'
            self.refused(code, words, self.state, "Read-only file system",
                         prefix=("unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh"))

    # --- the user gives up ----------------------------------------------------------------------------------------

    def processes(self):
        """Processes of this test's environment, but for its holders."""
        mine = []
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if self.folder.encode() in file.read() and int(entry) != os.getpid():
                        mine.append(int(entry))
            except (OSError, ValueError):
                continue
        return mine

    def test_a_signal_while_the_driver_hangs(self):
        env = dict(self.env, TEST_NVML_HANG="init")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before = self.tree()
            process = subprocess.Popen([*self.PREFIX, *self.words("true")], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            self.addCleanup(self.end, process)
            time.sleep(0.5)
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=BOUND), -number)
            deadline = time.monotonic() + 5
            while self.processes() and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(self.processes(), [], "the process that asks the driver goes along")
            self.assertEqual(self.tree(), before)

    def test_a_signal_at_any_instant(self):
        """What a signal interrupts is given back at once, or the program had started and dies of it."""
        for step in range(30):
            process = subprocess.Popen([*self.PREFIX, *self.words("sleep", "60", mem="600")], env=self.env, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(self.end, process)
            time.sleep(step * 0.004)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=BOUND), -signal.SIGINT)
            self.all_is_given_back()
        self.ok(self.call([*self.PREFIX, *self.words("true", mem="1000", options=["--card", "0"])]))


@unittest.skipUnless(ROOT, "plays another user")
class BadStateOfAUser(AsAUser, BadState):
    def test_another_users_slice(self):
        process = self.started(mem="100", options=["--name", "roots"])
        self.refused(1, ["limit", "roots", "--mem", "5"], "NAME: ", "'roots'", "belongs to user 0")
        process.stdin.close()

    def test_a_state_directory_that_others_closed(self):
        closed = self.folder + "/closed"
        os.makedirs(closed + "/slices")
        self.refused(125, ["--state", closed, "run", "--mem", "100", "--", "true"], "--state: ", f"'{closed}'", "Permission denied")
        os.chmod(closed, 0o700)


del BadCase  # no tests of its own

if __name__ == "__main__":
    unittest.main(verbosity=2)
