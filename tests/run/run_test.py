"""Starts programs with `tessera run` and looks at what comes through, what is refused and what is left behind."""

import atexit
import errno
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
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


class PassThrough(Case):
    def test_exit_codes(self):
        for code in (0, 1, 7, 255):
            self.assertEqual(self.run_in_slice("sh", "-c", f"exit {code}").returncode, code)

    def test_death_by_signal(self):
        for name in ("TERM", "KILL", "SEGV", "INT", "PIPE"):
            number = getattr(signal, "SIG" + name)
            self.assertEqual(self.run_in_slice("sh", "-c", f"kill -{name} $$").returncode, -number)

    def test_the_program_is_this_process(self):
        process = self.start("sh", "-c", "echo $$ $PPID")
        pid, parent = process.stdout.readline().split()
        self.assertEqual((int(pid), int(parent)), (process.pid, os.getpid()))

    def test_streams_and_silence(self):
        result = self.run_in_slice("sh", "-c", "cat; echo problem >&2", input="to the program")
        self.assertEqual((result.stdout, result.stderr), ("to the program", "problem\n"))

    def test_words_are_untouched(self):
        words = ["a b", "", "--", "-v", "--mem", "9", "$HOME", "*", "é\n"]
        result = self.run_in_slice(sys.executable, "-c", "import json,sys; print(json.dumps(sys.argv[1:]))", *words)
        self.assertEqual(json.loads(result.stdout), words)

    def test_environment_and_folder_are_untouched(self):
        for folder in ("/", "/etc", self.folder):
            result = self.run_in_slice(sys.executable, "-c", "import json,os; print(json.dumps([dict(os.environ), os.getcwd()]))",
                                       cwd=folder)
            environment, where = json.loads(self.ok(result).stdout)
            self.assertEqual(where, folder)
            environment.pop("LC_CTYPE", None)  # python's own
            expected = dict(self.env)
            expected.pop("LC_CTYPE", None)
            self.assertEqual(environment, expected)

    def test_no_descriptor_of_ours_is_left_open(self):
        result = self.run_in_slice("ls", "/proc/self/fd")
        self.assertEqual(len(result.stdout.split()), 4, result.stdout)  # 0, 1, 2 and that of ls

    def test_closed_streams_stay_closed_and_get_nothing_of_ours(self):
        # Verbose, so that something is said while standard error is closed.
        script = 'exec "$@" <&- >&- 2>&-'
        names = self.folder + "/names"
        result = self.call(["sh", "-c", script, "sh", *self.words("sh", "-c", f"exec ls /proc/self/fd >{names}", options=["-v"])])
        self.ok(result)
        with open(names) as text:
            self.assertEqual(text.read().split(), ["0", "1"])  # ls' own folder, and `names`
        ledger = self.run_in_slice("head", "-c", "8", "/run/tessera/ledger")
        self.assertEqual(ledger.stdout, "TSREDGR1")

    def test_no_process_of_ours_is_left(self):
        process = self.started()
        children = self.call(["ps", "-o", "pid=", "--ppid", str(process.pid)]).stdout.split()
        commands = self.call(["ps", "-o", "comm=", "-p", ",".join(children or ["1"])]).stdout
        self.assertNotIn("tessera", commands)
        self.assertEqual(self.call(["ps", "-o", "comm=", "-p", str(process.pid)]).stdout.strip(), "sh")

    def test_verbose_says_where(self):
        result = self.run_in_slice("true", options=["-v", "--name", "chat"])
        self.assertRegex(result.stderr, r"slice chat \([0-9a-f]{16}\) on card 0 \(Test card 0\): 100 MiB")

    def test_scripts_without_a_first_line_run(self):
        path = self.folder + "/script"
        with open(path, "w") as script:
            script.write("exit 5\n")
        os.chmod(path, 0o755)
        self.assertEqual(self.run_in_slice(path).returncode, 5)


class Fence(Case):
    def test_in_children_and_without_environment(self):
        for command in (HAS_FENCE, "sh -c '" + HAS_FENCE + "'", "env -i " + HAS_FENCE, "env -i sh -lc '" + HAS_FENCE + "'"):
            self.ok(self.run_in_slice("sh", "-c", command, options=["--require-fence"]))

    @unittest.skipUnless(ROOT, "su needs root")
    def test_after_su(self):
        command = HAS_FENCE + " && test -w /run/tessera/ledger && ! test -w /run/tessera/policy"
        self.ok(self.run_in_slice("su", "nobody", "-s", "/bin/sh", "-c", command))
        self.ok(self.run_in_slice("su", "-", "nobody", "-s", "/bin/sh", "-c", command))

    def test_policy_and_library_are_read_only(self):
        for name in ("policy", "libtessera.so"):
            for command in (f": >>/run/tessera/{name}", f"rm -f /run/tessera/{name}", f"mv /run/tessera/{name} /run/tessera/x",
                            "touch /run/tessera/new"):
                result = self.run_in_slice("sh", "-c", command)
                self.assertNotEqual(result.returncode, 0, command)
                self.assertRegex(result.stderr, "Read-only file system|Device or resource busy|cannot")
        code = ("import mmap,os\nf=os.open('/run/tessera/policy',os.O_RDONLY)\n"
                "try: mmap.mmap(f,4096,mmap.MAP_SHARED,mmap.PROT_READ|mmap.PROT_WRITE)\nexcept PermissionError: print('refused')")
        self.assertEqual(self.run_in_slice(sys.executable, "-c", code).stdout, "refused\n")

    def test_ledger_is_writable(self):
        self.ok(self.run_in_slice("sh", "-c", "exec 3<>/run/tessera/ledger"))

    def test_other_slices_are_hidden(self):
        self.started(options=["--name", "other"])
        result = self.run_in_slice("sh", "-c", f"ls -A {self.state}/slices; ls /run/tessera")
        self.assertEqual(result.stdout.split(), ["etc", "ledger", "libtessera.so", "policy"], result.stderr)

    def test_etc_is_as_before(self):
        here = sorted(set(os.listdir("/etc")) | {"ld.so.preload"})
        result = self.run_in_slice("ls", "-A", "/etc")
        self.assertEqual(sorted(result.stdout.split("\n"))[1:], here)
        with open("/etc/passwd") as passwd:
            self.assertEqual(self.run_in_slice("cat", "/etc/passwd").stdout, passwd.read())

    def test_the_host_sees_nothing_of_it(self):
        def mounts():
            with open("/proc/self/mountinfo") as text:
                return text.read()
        before = mounts()
        self.started()
        self.assertEqual(mounts(), before)
        self.assertFalse(os.path.exists("/run/tessera/policy"))

    def in_private_mounts(self, script, *words):
        return self.call(["unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", *words])

    @unittest.skipUnless(ROOT, "mounts need root")
    def test_an_existing_preload_stays(self):
        layer = self.folder + "/layer"
        os.mkdir(layer)
        with open(layer + "/ld.so.preload", "w") as preload:
            preload.write("libm.so.6\n")
        result = self.in_private_mounts('mount -t overlay o -o lowerdir=/etc:' + layer + ' /etc; exec "$@"',
                                        *self.words("cat", "/etc/ld.so.preload", "/proc/self/maps"))
        self.assertEqual(self.ok(result).stdout.split("\n")[:2], ["/run/tessera/libtessera.so", "libm.so.6"])
        self.assertIn("/libtessera.so", result.stdout)
        self.assertIn("/libm.so", result.stdout)

    @unittest.skipUnless(ROOT, "mounts need root")
    def test_mounts_below_etc_stay(self):
        name = self.folder + "/hostname"
        with open(name, "w") as text:
            text.write("bound-here\n")
        result = self.in_private_mounts(f'mount --bind {name} /etc/hostname; exec "$@"', *self.words("cat", "/etc/hostname"))
        self.assertEqual(self.ok(result).stdout, "bound-here\n")

    @unittest.skipUnless(ROOT, "mounts need root")
    def test_where_no_overlay_is_to_be_had(self):
        # Two overlays on /etc: the kernel allows no third.
        result = self.in_private_mounts(
            'mkdir -p {0}/a {0}/b; for l in a b; do mount -t overlay o -o lowerdir=/etc:{0}/$l /etc; done; exec "$@"'.format(
                self.folder), *self.words("sh", "-c", HAS_FENCE + " && cat /etc/passwd", options=["--require-fence"]))
        with open("/etc/passwd") as passwd:
            self.assertEqual(self.ok(result).stdout, passwd.read())

    def test_replacing_the_installed_library_touches_no_running_program(self):
        library = self.folder + "/libtessera.so"
        shutil.copy(FENCE, library)
        process = self.started("env -i " + HAS_FENCE, options=["--library", library])
        with open(library, "wb") as text:
            text.write(b"not a library")
        process.stdin.close()
        self.assertEqual(process.wait(timeout=BOUND), 0)

    def test_static_programs_are_named(self):
        result = self.run_in_slice(STATIC)
        self.assertEqual((result.returncode, result.stdout), (0, "static\n"))
        self.assertRegex(result.stderr, r"^tessera: .*static_program is statically linked: the fence cannot get into it.*\n$")
        result = self.run_in_slice(STATIC, options=["--require-fence"])
        self.assertEqual((result.returncode, result.stdout), (125, ""))
        self.all_is_given_back()

    def test_a_library_that_does_not_load_is_named(self):
        library = self.folder + "/libtessera.so"
        with open(library, "wb") as text:
            text.write(b"not a library")
        result = self.run_in_slice("true", options=["--library", library, "--require-fence"])
        self.assertEqual(result.returncode, 125)
        self.assertIn("the fence does not load", result.stderr)
        self.assertEqual(self.slices(), [])

    def test_no_slice_inside_a_slice(self):
        result = self.run_in_slice(*self.words("true"), options=["--name", "outer"])
        self.assertEqual(result.returncode, 125)
        self.assertEqual(result.stderr,
                         "tessera run: already inside slice 'outer'; a slice cannot be divided: run this outside of it\n")


@unittest.skipUnless(ROOT, "plays other users")
class Users(Case):
    UID = 54321

    def setUp(self):
        super().setUp()
        # Made by root, so that it is everybody's; as /run/tessera is.
        self.ok(self.run_in_slice("true"))

    def as_user(self, words, uid=UID, **more):
        return self.call(["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *words], **more)

    def test_same_user_and_no_capability(self):
        result = self.ok(self.as_user(self.words("sh", "-c", "id -u; id -g; grep Cap /proc/self/status", options=["--require-fence"])))
        lines = result.stdout.split()
        self.assertEqual(lines[:2], [str(self.UID)] * 2)
        self.assertEqual(set(lines[3::2]), {"0" * 16})

    def test_fence_holds(self):
        for command in (HAS_FENCE, "env -i " + HAS_FENCE, "env -i sh -lc '" + HAS_FENCE + "'"):
            self.ok(self.as_user(self.words("sh", "-c", command)))

    def test_mounts_stay(self):
        for command in ("umount /etc", "umount -l /run/tessera", "umount /run/tessera/policy", "mount -o remount,rw /run/tessera"):
            self.assertNotEqual(self.as_user(self.words("sh", "-c", command)).returncode, 0, command)
        # Nor from a user namespace of its own: mounts of a more privileged one are locked.
        command = "unshare -rm umount /etc || unshare -rm umount /run/tessera/policy"
        self.assertNotEqual(self.as_user(self.words("sh", "-c", command)).returncode, 0)

    def test_users_share_the_promises(self):
        self.started(mem="900", options=["--card", "0"])
        result = self.as_user(self.words("true", mem="200", options=["--card", "0"]))
        self.assertEqual(result.returncode, 3)
        self.assertIn("asked 200 MiB, free 100 MiB of 1,000 MiB (1 slice)", result.stderr)

    def test_a_user_cannot_touch_anothers_slice(self):
        self.started(options=["--name", "roots"])
        limit = self.as_user([TESSERA, "limit", "roots", "--mem", "1"])
        self.assertEqual(limit.returncode, 1)
        self.assertIn("belongs to user 0", limit.stderr)
        (name,) = [n for n in self.slices() if json.load(open(f"{self.state}/slices/{n}/slice.json"))["name"] == "roots"]
        folder = f"{self.state}/slices/{name}"
        for command in (f": >>{folder}/policy", f": >>{folder}/root-only/ledger", f"cat {folder}/root-only/ledger", f"rm -rf {folder}/policy"):
            self.assertNotEqual(self.as_user(["sh", "-c", command]).returncode, 0, command)

    def test_without_the_shared_directory_a_user_keeps_its_own(self):
        self.env.pop("TESSERA_STATE")
        own = f"/tmp/tessera-{self.UID}"
        self.addCleanup(shutil.rmtree, own, True)
        setpriv = ["setpriv", "--reuid", str(self.UID), "--regid", str(self.UID), "--clear-groups"]
        # An empty /run: no /run/tessera, and nobody but root may make it.
        script = 'mount -t tmpfs -o mode=755 t /run; mkdir /run/keep; echo kept >/run/keep/file; exec "$@"'
        result = self.call(["unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", *setpriv,
                            *self.words("sh", "-c", HAS_FENCE + " && cat /run/keep/file", options=["--require-fence"])])
        self.assertEqual(self.ok(result).stdout, "kept\n")
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertIn(own + ", not shared with other users", result.stderr)

    def test_somebody_elses_folder_is_not_used(self):
        self.env.pop("TESSERA_STATE")
        own = f"/tmp/tessera-{self.UID}"
        os.mkdir(own, 0o777)
        self.addCleanup(shutil.rmtree, own, True)
        setpriv = ["setpriv", "--reuid", str(self.UID), "--regid", str(self.UID), "--clear-groups"]
        result = self.call(["unshare", "-m", "--propagation", "private", "sh", "-ec", 'mount -t tmpfs -o mode=755 t /run; exec "$@"', "sh",
                            *setpriv, *self.words("true")])
        self.assertEqual(result.returncode, 125)
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertEqual(os.listdir(own), [])

    def without_namespaces(self, words):
        # The kernel makes no user namespace for who is in a chroot.
        script = f'mount --rbind / {self.folder}/root; exec "$@"'
        os.makedirs(self.folder + "/root", exist_ok=True)
        return self.call(["unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", "chroot", f"--userspec={self.UID}:{self.UID}",
                          self.folder + "/root", *words])

    def test_without_namespaces_the_environment_serves_and_that_is_said(self):
        result = self.ok(self.without_namespaces(self.words("sh", "-c", HAS_FENCE + " && echo $TESSERA_SLICE_DIR && ls $TESSERA_SLICE_DIR")))
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertIn("fenced by LD_PRELOAD only", result.stderr)
        self.assertEqual(result.stdout.split()[1:], ["ledger", "libtessera.so", "policy", "slice.json"])

    def test_without_namespaces_require_fence_refuses(self):
        before = self.slices()
        result = self.without_namespaces(self.words("true", options=["--require-fence"]))
        self.assertEqual(result.returncode, 125)
        self.assertRegex(result.stderr, r"^tessera run: --require-fence: no mount namespace to be had: .*\n$")
        self.assertEqual(self.slices(), before)


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
        self.assertIn("--name: 'chat' is taken by a live slice", result.stderr)

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


class Terminal(Case):
    def open(self, script):
        """A program of a slice on a terminal of its own; answers (pid, terminal)."""
        pid, terminal = pty.fork()
        if pid == 0:
            try:
                os.execve(TESSERA, self.words("sh", "-c", script), self.env)
            finally:
                os._exit(99)
        self.addCleanup(self.hang_up, pid, terminal)
        return pid, terminal

    def hang_up(self, pid, terminal):
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(terminal)

    def read_until(self, terminal, text):
        seen = ""
        deadline = time.monotonic() + BOUND
        while text not in seen:
            self.assertLess(time.monotonic(), deadline, seen)
            if select.select([terminal], [], [], 1)[0]:
                try:
                    seen += os.read(terminal, 4096).decode()
                except OSError as problem:
                    self.assertEqual(problem.errno, errno.EIO)
                    self.fail("ended with: " + seen)
        return seen

    def test_control_c(self):
        pid, terminal = self.open("trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done")
        self.read_until(terminal, "ready")
        os.write(terminal, b"\x03")
        self.read_until(terminal, "caught")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 3)

    def test_stop_and_continue(self):
        pid, terminal = self.open("echo ready; read line; echo got $line; exit 4")
        self.read_until(terminal, "ready")
        os.kill(pid, signal.SIGSTOP)
        self.assertTrue(os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]))
        os.kill(pid, signal.SIGCONT)
        os.write(terminal, b"word\n")
        self.read_until(terminal, "got word")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 4)

    def test_it_is_a_terminal_with_a_size(self):
        import fcntl
        import struct
        import termios
        pid, terminal = self.open("trap 'stty size; exit 0' WINCH; tty; echo ready; while :; do sleep 0.1; done")
        self.assertIn("/dev/pts/", self.read_until(terminal, "ready"))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        self.read_until(terminal, "33 99")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)


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
