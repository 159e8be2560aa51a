"""Starts programs with `tessera run` and looks at what comes through."""

import errno
import json
import os
import pty
import select
import shutil
import signal
import sys
import time
import unittest

from run_case import BOUND, FENCE, HAS_FENCE, ROOT, STATIC, TESSERA, Case


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
        names = [own] + [f"{own}.{i}" for i in range(2, 17)]
        setpriv = ["setpriv", "--reuid", str(self.UID), "--regid", str(self.UID), "--clear-groups"]

        def run():
            return self.call(["unshare", "-m", "--propagation", "private", "sh", "-ec", 'mount -t tmpfs -o mode=755 t /run; exec "$@"', "sh",
                              *setpriv, *self.words("true")])

        for name in names:
            self.addCleanup(shutil.rmtree, name, True)
        os.mkdir(own, 0o777)
        self.assertIn(f"{own}.2, not shared", self.ok(run()).stderr)
        shutil.rmtree(own + ".2")
        for name in names[1:]:
            os.mkdir(name, 0o777)
        result = run()
        self.assertEqual(result.returncode, 125)
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertIn(f"{names[-1]} and all others of that name belong to somebody else; name one with --state DIR", result.stderr)
        for name in names:
            self.assertEqual(os.listdir(name), [])

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
