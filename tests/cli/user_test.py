"""The command line as a user without any right: with user namespaces, and where the kernel refuses them.
user_test.py TESSERA_SIM TESSERA"""
import json
import os
import shutil
import subprocess
import sys
import unittest

from machine import HOLDER, Machine

SIM, TESSERA = sys.argv[1:3]
UID = 54323
PYTHON = "/usr/bin/python3"  # the one that every user may start
MIB = 1 << 20


class UserMachine(Machine):
    """A machine whose programs stand where every user can start them, used by `uid`."""

    def __enter__(self):
        super().__enter__()
        os.chmod(self.folder, 0o755)
        build = os.path.dirname(os.path.dirname(TESSERA))
        for source, to in ((TESSERA, "bin/tessera"), (build + "/lib/libtessera.so", "lib/tessera/libtessera.so"), (SIM, "sim/bin/tessera-sim"),
                           (HOLDER, "holder.py")):
            os.makedirs(os.path.dirname(f"{self.folder}/{to}"), exist_ok=True)
            shutil.copy(source, f"{self.folder}/{to}")
        shutil.copytree(os.path.dirname(os.path.dirname(SIM)) + "/lib", self.folder + "/sim/lib", symlinks=True)
        self.sim, self.tessera, self.holder = (f"{self.folder}/{name}" for name in ("sim/bin/tessera-sim", "bin/tessera", "holder.py"))
        self.environment["HOME"] = "/"
        self.prefix = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "--inh-caps=-all"]
        # As root's first slice makes it: for all users of the machine.
        os.makedirs(self.folder + "/promises/slices")
        for name in ("promises", "promises/slices"):
            os.chmod(f"{self.folder}/{name}", 0o1777)
        # The simulated node is the user's, so that both may write it.
        os.mkdir(self.folder + "/card")
        os.chown(self.folder + "/card", UID, UID)
        subprocess.run([*self.prefix, self.sim, "run", "--node", self.node, "--state", self.folder + "/card/node", "--", "true"], check=True,
                       env=self.environment, timeout=60, capture_output=True)
        return self

    def command(self, *words):
        # By the environment: tessera-sim's own user namespace would stand between this user and its slices.
        return [*self.prefix, "env", f"LD_LIBRARY_PATH={self.folder}/sim/lib", f"TESSERA_SIM_NODE={self.folder}/card/node", *words]

    def hold(self, mib, *options, slice_mib=None):
        process = self.start(self.tessera, "run", "--mem", str(slice_mib or mib + 1000), *options, "--", PYTHON, self.holder, str(mib))
        line = process.stdout.readline().strip()
        assert line == "holding", (line, process.stderr.read() if not line else "")
        return process

    def without_namespaces(self):
        """The kernel makes no user namespace for who is in a chroot."""
        root = self.folder + "/root"
        os.makedirs(root, exist_ok=True)
        script = f'mount --rbind / {root}; exec "$@"'
        self.prefix = ["unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", "chroot", f"--userspec={UID}:{UID}", "--groups=",
                       root]

    def as_root(self):
        self.prefix = []


@unittest.skipUnless(os.geteuid() == 0 and os.access(PYTHON, os.X_OK), "plays another user")
class User(unittest.TestCase):
    def setUp(self):
        self.machine = UserMachine(SIM, TESSERA)
        self.machine.__enter__()
        self.addCleanup(self.machine.__exit__)

    def cli(self, *words, code=0):
        answer = self.machine.cli(*words)
        self.assertEqual(answer.returncode, code, answer.stdout + answer.stderr)
        return answer

    def json(self, *words, code=0):
        return json.loads(self.cli(*words, "--output", "json", code=code).stdout)

    def levels(self, code):
        return {check["id"]: check["level"] for check in self.json("doctor", code=code)["checks"]}

    def everything(self, fencing):
        self.assertEqual(self.cli("ps").stdout, "No slices on this machine.\n")
        holder = self.machine.hold(2000, "--name", "chat", slice_mib=8000)
        (chat,) = self.json("ps")["slices"]
        self.assertEqual((chat["name"], chat["owner_uid"], chat["fencing"], chat["fence"], chat["remarks"]), ("chat", UID, fencing, "live", []))
        self.assertEqual(chat["cards"][0]["held_by_kind"]["linear"], 2000 * MIB)
        self.assertTrue(all(len(line) <= 80 for line in self.cli("ps").stdout.splitlines()))
        self.assertIn("8,000 MiB -> 9,000 MiB", self.cli("limit", "chat", "--mem", "9000").stdout)
        self.assertEqual(self.json("ps")["slices"][0]["cards"][0]["limit_bytes"], 9000 * MIB)
        self.assertFalse(self.json("explain", "--mem", "20000", code=1)["fits"])
        held = {row["what"]: row["held"] for row in self.json("explain", "chat")["guarantees"]}
        self.assertEqual((held["memory"], held["staying inside"], held["second wall"]), (True, fencing == "namespace", False))
        self.cli("top", "-n", "1")
        # The cap holds, and what ends gives back.
        refused = self.machine.run(self.machine.tessera, "run", "--mem", "1000", "--", PYTHON, self.machine.holder, "5000")
        self.assertEqual((refused.returncode, refused.stdout), (3, "out of memory\n"), refused.stderr)
        holder.stdin.close()
        self.assertEqual(holder.wait(timeout=20), 0)
        return holder

    def test_with_user_namespaces(self):
        before = self.levels(0)
        self.assertEqual((before["namespaces"], before["state"], before["fence-library"]), ("ok", "ok", "ok"))
        holder = self.everything("namespace")
        self.assertEqual(holder.stderr.read(), "")

    def test_without_user_namespaces(self):
        self.machine.without_namespaces()
        before = self.levels(1)
        self.assertEqual(before["namespaces"], "warning")
        self.assertIn("--require-fence", self.cli("doctor", code=1).stdout)
        holder = self.everything("environment")
        self.assertRegex(holder.stderr.read(), r"^tessera: fenced by LD_PRELOAD only.*\n$")
        refused = self.machine.run(self.machine.tessera, "run", "--mem", "100", "--require-fence", "--", "true")
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (125, 1), refused.stderr)

    def test_another_users_slice_is_shown_as_far_as_it_may_be_seen(self):
        machine, prefix = self.machine, self.machine.prefix
        machine.as_root()
        machine.hold(1000, "--name", "roots")
        machine.prefix = prefix
        (roots,) = self.json("ps")["slices"]
        self.assertEqual((roots["name"], roots["owner_uid"], roots["cards"][0]["promised_bytes"]), ("roots", 0, 2000 * MIB))
        self.assertIsNone(roots["cards"][0]["held_bytes"], "root's ledger is not for others")
        self.assertNotEqual(roots["fence"], "hole")
        self.assertNotIn("error", self.levels(self.machine.run(machine.tessera, "doctor").returncode).values())
        answer = self.cli("limit", "roots", "--mem", "5", code=1)
        self.assertEqual(answer.stderr, "tessera limit: NAME: 'roots' belongs to user 0; only that user and root may change it\n")
        # What root was promised is taken into account all the same.
        answer = self.cli("run", "--mem", "22000", "--", "true", code=3)
        self.assertIn("free 21,028 MiB of 23,028 MiB (1 slice)", answer.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
