"""Another user of the machine puts things where Tessera looks: in the directories that every user may write."""
import os
import shutil
import subprocess
import sys
import unittest

from hostile import BOUND, Case, main, program

sys.argv[1:3] = map(os.path.abspath, sys.argv[1:3])
from user_test import SIM, TESSERA, UserMachine  # noqa: E402

OWNER, STRANGER = 54323, 54324  # UserMachine's user, and one who means harm
OPERATING_SYSTEM = 304


class SharedMachine(UserMachine):
    """A machine with a /run of its own, where root has made /run/tessera for everybody; used by one user or the other."""

    def __enter__(self):
        super().__enter__()
        self.environment.pop("TESSERA_STATE")
        script = "mount -t tmpfs -o mode=0755 none /run; mkdir -m 1777 /run/tessera /run/tessera/slices; echo ready; read end"
        self.around = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-ec", script], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(self.around)
        assert self.around.stdout.readline() == "ready\n"
        self.as_user(OWNER)
        return self

    def as_user(self, uid):
        self.prefix = ["nsenter", "-t", str(self.around.pid), "-m", "--wd=/", "--"]
        if uid:
            self.prefix += ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--inh-caps=-all"]

    def by(self, uid, *words):
        """Runs a command as that user; its output."""
        before = self.prefix
        self.as_user(uid)
        done = self.run(*words)
        self.prefix = before
        assert done.returncode == 0, (words, done)
        return done.stdout


@unittest.skipUnless(os.geteuid() == 0, "plays other users")
class Stranger(Case):
    def setUp(self):
        self.on = SharedMachine(SIM, TESSERA)
        self.on.__enter__()
        self.addCleanup(self.on.__exit__)

    def start(self, limit, mib):
        """(result of cuInit, MiB granted, stderr) of a program with HAMi's variables."""
        words = ["env", f"LD_PRELOAD={self.on.folder}/lib/tessera/libtessera.so", f"CUDA_DEVICE_MEMORY_LIMIT={limit}",
                 f"CUDA_DEVICE_MEMORY_SHARED_CACHE={self.on.folder}/card/cache", self.try_init, str(mib)]
        done = self.on.run(*words, timeout=BOUND)
        self.assertEqual(done.returncode, 0, done)
        result, granted = done.stdout.split()
        return int(result), int(granted), done.stderr

    @property
    def try_init(self):
        path = self.on.folder + "/try_init"
        if not os.path.exists(path):
            subprocess.run(["cp", program("try_init"), path], check=True, timeout=BOUND)
        return path

    def test_a_policy_in_a_directory_of_all_users_is_nobodys(self):
        make = {"empty": ("touch", "/run/tessera/policy"), "fifo": ("mkfifo", "-m", "666", "/run/tessera/policy"),
                "link": ("ln", "-s", "/dev/zero", "/run/tessera/policy"), "folder": ("mkdir", "/run/tessera/policy")}
        for what, words in make.items():
            with self.subTest(what):
                self.on.by(STRANGER, *words)
                for uid in (OWNER, 0):
                    self.on.as_user(uid)
                    done = self.on.cli("run", "--mem", "100", "--", "true")
                    self.assertEqual((done.returncode, done.stderr), (0, ""), (uid, done))
                self.on.as_user(OWNER)
                self.assertEqual(self.start("2g", 1000), (0, 1000, ""))
                self.on.by(STRANGER, "rm", "-rf", "/run/tessera/policy")

    def test_a_whole_policy_of_a_stranger_changes_no_limit(self):
        copy = self.on.folder + "/card/copy"
        self.on.by(0, TESSERA, "run", "--mem", "22000", "--", "sh", "-c", f"mkdir {copy}; cp /run/tessera/policy /run/tessera/ledger {copy}")
        self.on.by(STRANGER, "sh", "-c", f"cp {copy}/policy {copy}/ledger /run/tessera; chmod 666 /run/tessera/*r")
        self.assertEqual(self.start("2g", 3000), (0, 0, ""), "the limit is the user's own")
        self.assertEqual(self.start("2g", 1000), (0, 1000, ""))

    def test_the_names_in_tmp_that_a_user_would_take_are_taken(self):
        self.on.by(0, "rm", "-rf", "/run/tessera")
        folder = f"/tmp/tessera-{OWNER}"
        self.assertFalse(os.path.exists(folder), "left by somebody")
        self.addCleanup(shutil.rmtree, folder + ".2", ignore_errors=True)
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.on.by(STRANGER, "mkdir", "-m", "777", folder)
        self.on.environment.pop("XDG_RUNTIME_DIR", None)
        done = self.on.cli("run", "--mem", "100", "--name", "mine", "--", "true")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(f"promises are kept in {folder}.2, not shared", done.stderr)
        # Once it is free, all go on where the promises are.
        os.rmdir(folder)
        self.assertIn(folder + ".2,", self.on.cli("run", "--mem", "100", "--", "true").stderr)
        self.assertEqual(self.on.json("ps")["state"]["path"], folder + ".2")


main()
