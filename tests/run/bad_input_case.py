"""Bad input: every refusal is one line that names field, value and what is legal, ends with a code other than 0 and leaves
nothing behind. Each case runs as this user and, where this user is root, as one without any right."""

import hashlib
import os
import stat
import subprocess

from run_case import ROOT, TESSERA, Case

UID = 54322
NONE = "no-such-thing"
MEMORY = "whole MiB from 1, as 8000, 8000MiB or 8Gi"
CORES = "whole percent of one card from 1 to 100"
CARDS = "a whole number of cards from 1 to 16"
NAMES = "a-z A-Z 0-9"
LONG = "9" * 5000


def shown(value):
    """The value as messages show it: printable, at most 64 characters."""
    text = "".join("?" if ord(c) < 0x20 or ord(c) == 0x7f else c for c in value)
    return f"'{text}'" if len(text.encode()) <= 64 else f"'{text[:20]}"


class BadCase(Case):
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


class AsAUser:
    """The same cases for a user without any right."""

    PREFIX = ("setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "--inh-caps=-all")
