"""Bad input: every refusal is one line that names field, value and what is legal, ends with a code other than 0 and leaves
nothing behind. Each case runs as this user and, where this user is root, as one without any right."""

import hashlib
import json
import os
import pty
import signal
import stat
import subprocess
import time
import unittest

from run_test import BOUND, ROOT, TESSERA, Case

UID = 54322
NONE = "no-such-thing"
MEMORY = "whole MiB from 1, as 8000, 8000MiB or 8Gi"
CORES = "whole percent of one card from 1 to 100"
CARDS = "a whole number of cards from 1 to 16"
NAMES = "a-z A-Z 0-9"
LONG = "9" * 5000

# What nobody can have meant as a size.
SIZES = ("0", "-1", "+5", "1.5", "0.5Gi", "1e3", "0x10", "8G", "8GB", "8000mb", "8 Gi", " 8", "8 ", "1,000", "huge", "", "16777217", "17000Gi",
         "99999999999999999999", LONG, "8\n9", "\x1b[31m8", "８０００", "8000;", "∞", "nan")
PERCENTS = ("0", "-1", "101", "30%", "1.5", "1e1", "many", "", "99999999999999999999", "1\n2")
COUNTS = ("0", "-1", "17", "1.5", "all", "", "99999999999999999999")
WORDS = ("HIGH", "hihg", "1", "", "low,high", "low\n")
BAD_NAMES = ("a/b", ".a", "a b", "a" * 64, "é", "a\nb", "", "../x")


def shown(value):
    """The value as messages show it: printable, at most 64 characters."""
    text = "".join("?" if ord(c) < 0x20 or ord(c) == 0x7f else c for c in value)
    return f"'{text}'" if len(text.encode()) <= 64 else f"'{text[:20]}"


def manifest(limits, kind="Pod", extra=""):
    lines = "".join(f"        {name}: {value}\n" for name, value in limits.items())
    return (f"kind: {kind}\nmetadata:\n  name: demo\n{extra}spec:\n  containers:\n  - name: chat\n    resources:\n      limits:\n" + lines)


GPUMEM = {"nvidia.com/gpumem": 100}
# name -> text, what the message has to hold besides the file's name
MANIFESTS = {
    "empty": ("", ["no workload", "Pod, Deployment"]),
    "prose": ("dear machine, please give me a card\n", ["no workload"]),
    "binary": ("\x00\x01\x02\x7f", ["not a YAML text"]),
    "unclosed": ("kind: Pod\nspec: {containers: [\n", ["line"]),
    "deep": ("a: " + "[" * 2000, ["not a YAML text"]),
    "service": ("kind: Service\n", ["no workload"]),
    "two-pods": (manifest(GPUMEM) + "---\n" + manifest(GPUMEM), ["more than one workload"]),
    "no-container": ("kind: Pod\nspec: {}\n", ["no containers"]),
    "no-gpu": (manifest({"cpu": 1}), ["asks for a GPU", "nvidia.com/gpu"]),
    "misspelt": (manifest({"nvidia.com/gpumemory": 100}), ["'nvidia.com/gpumemory'", "gpumem-percentage"]),
    "mem-zero": (manifest({"nvidia.com/gpumem": 0}), ["nvidia.com/gpumem", "'0'", "whole MiB"]),
    "mem-negative": (manifest({"nvidia.com/gpumem": -5}), ["nvidia.com/gpumem", "'-5'", "whole MiB"]),
    "mem-fraction": (manifest({"nvidia.com/gpumem": 0.5}), ["nvidia.com/gpumem", "'0.5'", "whole MiB"]),
    "mem-huge": (manifest({"nvidia.com/gpumem": LONG}), ["nvidia.com/gpumem", "'99999", "whole MiB"]),
    "mem-unit": (manifest({"nvidia.com/gpumem": "16Gi"}), ["nvidia.com/gpumem", "'16Gi'", "whole MiB"]),
    "mem-list": (manifest({"nvidia.com/gpumem": "[1, 2]"}), ["nvidia.com/gpumem", "whole MiB"]),
    "percent-101": (manifest({"nvidia.com/gpumem-percentage": 101}), ["nvidia.com/gpumem-percentage", "'101'", "1 to 100"]),
    "percent-zero": (manifest({"nvidia.com/gpumem-percentage": 0}), ["nvidia.com/gpumem-percentage", "'0'", "1 to 100"]),
    "cores-101": (manifest({**GPUMEM, "nvidia.com/gpucores": 101}), ["nvidia.com/gpucores", "'101'", "0 to 100"]),
    "gpu-zero": (manifest({"nvidia.com/gpu": 0}), ["nvidia.com/gpu", "'0'", "1 to 16"]),
    "gpu-17": (manifest({"nvidia.com/gpu": 17}), ["nvidia.com/gpu", "'17'", "1 to 16"]),
    "priority-limit": (manifest({**GPUMEM, "nvidia.com/priority": 2}), ["nvidia.com/priority", "'2'", "0 (high) or 1 (low)"]),
    "priority-annotation": (manifest(GPUMEM, extra="  annotations: {nvidia.com/priority: urgent}\n"),
                            ["nvidia.com/priority", "'urgent'", "0 (high) or 1 (low)"]),
    "mem-annotation": (manifest(GPUMEM, extra="  annotations: {nvidia.com/gpumem: \"100\"}\n"), ["nvidia.com/gpumem", "resources.limits"]),
    "twice": (manifest(GPUMEM) + "        nvidia.com/gpumem: 200\n", ["nvidia.com/gpumem", "twice", "line"]),
    "mig": (manifest({"nvidia.com/mig-1g.5gb": 1}), ["nvidia.com/mig-1g.5gb", "nvidia.com/gpumem"]),
    "a\nname": (manifest({"nvidia.com/gpumem": 0}), ["whole MiB"]),
    "no-command": (manifest(GPUMEM), ["command: missing", "'chat'"]),
}


class BadInput(Case):
    PREFIX = ()

    def setUp(self):
        super().setUp()
        self.files = self.folder + "/files"
        os.mkdir(self.files)
        self.left_out = set()
        # A state directory for everybody, as root's first slice makes it.
        os.makedirs(self.state + "/slices")
        for path in (self.state, self.state + "/slices"):
            os.chmod(path, 0o1777 if ROOT else 0o755)
        with open(self.state + "/lock", "w", encoding="utf-8"):
            pass

    # --- what is compared -----------------------------------------------------------------------------------------

    def tree(self):
        seen = {}
        for folder, folders, files in os.walk(self.folder):
            for name in folders + files:
                path = os.path.join(folder, name)
                info = os.lstat(path)
                content = ""
                if stat.S_ISREG(info.st_mode):
                    with open(path, "rb") as file:
                        content = hashlib.sha256(file.read()).hexdigest()
                seen[path] = (info.st_mode, info.st_uid, info.st_size, content)
        return seen

    def refused(self, code, words, *parts, prefix=(), env=None, stdout=""):
        before = self.tree()
        result = self.call([*prefix, *self.PREFIX, TESSERA, *words], env=env or self.env, stdin=subprocess.DEVNULL)
        with self.subTest(words=[word[:80] for word in words]):
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(result.stdout, stdout)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            line = result.stderr[:-1]
            self.assertTrue(line.startswith("tessera"), line)
            self.assertTrue(line.isprintable(), line)
            self.assertLess(len(line), 700, line)
            for part in parts:
                self.assertIn(part, line)
            self.assertEqual(self.tree(), before, "something was left behind")

    def hold(self, mem="900", name="chat", card="0"):
        process = subprocess.Popen([*self.PREFIX, *self.words("sh", "-c", "echo ready; read line", mem=mem, options=["--name", name, "--card", card])],
                                   env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        line = process.stdout.readline()
        self.assertEqual(line, "ready\n", "" if line else process.stderr.read())
        return process

    # --- options --------------------------------------------------------------------------------------------------

    def option(self, sub, option, values, legal, after=()):
        for value in values:
            if "\0" in value:
                continue
            words = [*sub, option, value, *after]
            self.refused(2, words, f"tessera {sub[0]}: {option}: ", shown(value), *([legal] if value else []))

    def test_sizes(self):
        self.hold()
        self.option(("run",), "--mem", SIZES, MEMORY, ("--", "true"))
        self.option(("limit", "chat"), "--mem", SIZES, MEMORY)
        self.option(("explain",), "--mem", SIZES, MEMORY)

    def test_shares_and_counts(self):
        self.hold()
        for sub, after in ((("run", "--mem", "100"), ("--", "true")), (("explain", "--mem", "100"), ())):
            self.option(sub, "--cores", PERCENTS, CORES, after)
            self.option(sub, "--cards", COUNTS, CARDS, after)
        self.option(("limit", "chat"), "--cores", PERCENTS, CORES)

    def test_words(self):
        self.hold()
        for sub, after in ((("run", "--mem", "100"), ("--", "true")), (("explain", "--mem", "100"), ())):
            self.option(sub, "--priority", WORDS, "low or high", after)
            self.option(sub, "--policy", ("pack", "SPREAD", ""), "binpack or spread", after)
        self.option(("limit", "chat"), "--priority", WORDS, "low or high")
        self.option(("run", "--mem", "100"), "--on-bypass", ("shoot", "", "KILL"), "report, pause or kill", ("--", "true"))
        self.option(("run", "--mem", "100"), "--name", BAD_NAMES, NAMES, ("--", "true"))
        self.option(("top",), "--interval", ("0", "-1", "0.5", "3601", "soon", ""), "whole numbers from 1 to 3,600")
        self.option(("top",), "--iterations", ("0", "-1", "1.5", "1000001", "many", ""), "whole numbers from 1 to 1,000,000")
        self.option(("ps",), "--output", ("xml", "JSON", ""), "text or json")
        self.refused(2, ["completion", "tcsh\n"], "SHELL", "'tcsh?'", "bash, zsh or fish")
        self.refused(2, ["completion"], "SHELL", "missing", "bash, zsh or fish")

    def test_cards(self):
        here = "0 (GPU-0a100000-0000-0000-0000-000000000000)"
        for sub, after in ((("run", "--mem", "100"), ("--", "true")), (("explain", "--mem", "100"), ())):
            for value in ("9", "-1", "1.5", "GPU-x", "first", "9\n9", "GPU-99999999-0000-0000-0000-000000000000", "0,9", LONG):
                part = value.split(",")[-1]
                self.refused(2, [*sub, "--card", value, *after], "--card: ", shown(part), here)
            for value in (",", "0,", ",1", "0,,1", "0,0", ""):
                self.refused(2, [*sub, "--card", value, *after], "--card: ", shown(value))

    def test_a_card_without_room(self):
        self.hold()
        free = ("card 0", "asked 200 MiB", "free 100 MiB of 1,000 MiB", "1 slice")
        self.refused(3, ["run", "--mem", "200", "--card", "0", "--", "true"], *free)
        self.refused(3, ["run", "--mem", "600", "--cards", "2", "--", "true"], "no room for 2 cards", "card 0: asked 600 MiB, free 100 MiB",
                     "card 2: not healthy")
        self.refused(2, ["run", "--mem", "1001", "--", "true"], "--mem: ", "'1,001 MiB'", "1,000 MiB")
        self.refused(3, ["run", "--mem", "10", "--card", "2", "--", "true"], "card 2", "not healthy", "GPU is lost")
        self.refused(2, ["run", "--mem", "10", "--cards", "4", "--", "true"], "--cards: ", "'4'", "3 cards that may be used here")
        self.refused(3, ["run", "--mem", "10", "--cores", "100", "--card", "0", "--", "true"], "card 0", "cores 100", "1 slice")
        self.hold(mem="50", name="other")
        self.refused(3, ["limit", "chat", "--mem", "951"], "'chat'", "card 0", "asked 951 MiB", "free 950 MiB of 1,000 MiB")
        self.refused(2, ["limit", "chat", "--mem", "1001"], "'chat'", "card 0", "asked 1,001 MiB", "1,000 MiB")
        self.refused(2, ["run", "--mem", "10", "--name", "chat", "--", "true"], "--name: ", "'chat'", "taken")

    def test_commands(self):
        self.refused(2, ["run", "--mem", "100"], "command: missing", "after --")
        self.refused(2, ["run", "--mem", "100", "--"], "command: missing", "after --")
        self.refused(2, ["run", "--mem", "100", "--", ""], "command: missing", "after --")
        self.refused(127, ["run", "--mem", "100", "--", NONE], "command: ", f"'{NONE}'", "PATH")
        self.refused(127, ["run", "--mem", "100", "--", "/no/such\nfile"], "command: ", "'/no/such?file'", "is not there")
        self.refused(126, ["run", "--mem", "100", "--", "/etc"], "command: ", "'/etc'", "may not be executed")
        self.refused(126, ["run", "--mem", "100", "--", "/etc/passwd"], "command: ", "'/etc/passwd'", "may not be executed")
        self.refused(2, ["run", "--", "true"], "--mem: missing", MEMORY)

    def test_what_the_parser_refuses(self):
        for words, parts in (
            (["frob"], ("unknown subcommand", "'frob'", "run, limit, ps, top, explain, doctor, completion")),
            (["rnu"], ("'rnu'", "did you mean 'run'")),
            (["--output", "json"], ("missing subcommand", "run, limit, ps")),
            (["--state"], ("--state: ", "missing", "DIR")),
            (["--state", "", "ps"], ("--state: ", "''")),
            (["run", "--mem"], ("--mem: ", "missing", "N[MiB|Gi]")),
            (["run", "--mem", "1", "--mem", "2", "--", "true"], ("--mem: ", "more than once")),
            (["run", "--nmae", "x", "--mem", "100", "--", "true"], ("unknown option", "'--nmae'", "'--name'")),
            (["run", "--frobnicate", "--", "true"], ("unknown option", "'--frobnicate'", "--mem", "--cores")),
            (["top", "--mem", "3"], ("unknown option", "'--mem'", "--interval")),
            (["ps", "extra"], ("unexpected word", "'extra'")),
            (["limit", "a", "b\nc"], ("unexpected word", "'b?c'")),
            (["limit"], ("NAME: ", "missing")),
            (["limit", "chat"], ("nothing to change", "--mem, --cores or --priority")),
            (["explain"], ("NAME", "--mem")),
            (["explain", "--cores", "5"], ("NAME", "--mem")),
            (["explain", "chat", "--mem", "5"], ("NAME", "--mem")),
            (["explain", "chat", "--cores", "5"], ("NAME", "--cores")),
        ):
            self.refused(2, words, *parts)

    def test_names_of_slices(self):
        self.hold()
        for words in (["limit", "nobody", "--mem", "5"], ["explain", "nobody"]):
            self.refused(1, words, "NAME: ", "'nobody'", "chat")
        self.refused(1, ["limit", "a\nb" + LONG, "--mem", "5"], "NAME: ", "'a?b", "chat")

    # --- manifests ------------------------------------------------------------------------------------------------

    def test_manifests(self):
        for name, (text, parts) in MANIFESTS.items():
            path = f"{self.files}/{name}.yaml"
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            told = os.path.basename(path).replace("\n", "?")
            self.refused(2, ["run", "-f", path] + ([] if name == "no-command" else ["--", "true"]), *([] if name == "no-command" else [told]), *parts)
            if name != "no-command":
                self.refused(2, ["explain", "-f", path], told, *parts)

    def test_files_that_are_no_manifests(self):
        good = self.files + "/good.yaml"
        with open(good, "w", encoding="utf-8") as file:
            file.write(manifest(GPUMEM))
        large = self.files + "/large.yaml"
        with open(large, "w", encoding="utf-8") as file:
            file.write(manifest(GPUMEM) + "#" * (1 << 20))
        fifo = self.files + "/fifo.yaml"
        os.mkfifo(fifo)
        secret = self.files + "/secret.yaml"
        with open(secret, "w", encoding="utf-8") as file:
            file.write(manifest(GPUMEM))
        os.chmod(secret, 0)
        cases = [("/no/such.yaml", "No such file"), (self.files, "not a regular file"), (fifo, "not a regular file"), (large, "longer than"),
                 (good + ":", "container"), (good + ":nobody", "'nobody'"), ("", "''")]
        if not ROOT or self.PREFIX:
            cases.append((secret, "Permission denied"))
        for value, part in cases:
            for words in (["run", "-f", value, "--", "true"], ["explain", "-f", value]):
                self.refused(2, words, part, *([value.rsplit(":", 1)[0]] if value else []))
        # An option beside a good manifest is checked as well.
        self.refused(2, ["run", "-f", good, "--mem", "0", "--", "true"], "--mem: ", "'0'", MEMORY)

    # --- the machine ----------------------------------------------------------------------------------------------

    SAID_BY_ALL = (["run", "--mem", "100", "--", "true"], ["limit", "chat", "--mem", "5"], ["explain", "--mem", "100"])

    def broken_slice(self, write):
        folder = self.state + "/slices/0123456789abcdef"
        os.mkdir(folder)
        write(folder)
        return folder

    def check_broken(self, folder, *parts):
        self.refused(125, ["run", "--mem", "100", "--", "true"], folder, *parts)
        self.refused(1, ["explain", "--mem", "100"], folder, *parts)
        self.refused(1, ["limit", "chat", "--mem", "5"], folder, *parts)
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
class BadInputOfAUser(BadInput):
    PREFIX = ("setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "--inh-caps=-all")

    def test_another_users_slice(self):
        process = self.started(mem="100", options=["--name", "roots"])
        self.refused(1, ["limit", "roots", "--mem", "5"], "NAME: ", "'roots'", "belongs to user 0")
        process.stdin.close()

    def test_a_state_directory_that_others_closed(self):
        closed = self.folder + "/closed"
        os.makedirs(closed + "/slices")
        self.refused(125, ["--state", closed, "run", "--mem", "100", "--", "true"], "--state: ", f"'{closed}'", "Permission denied")
        os.chmod(closed, 0o700)
        for words, code in zip(self.SAID_BY_ALL, (125, 1, 1)):
            self.refused(code, ["--state", closed, *words], "--state: ", f"'{closed}'", "Permission denied")


del Case  # no tests of its own

if __name__ == "__main__":
    unittest.main(verbosity=2)
