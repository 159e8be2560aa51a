"""scripts/install-deps on a package of our own and without a network: what it leaves, what it says, what it survives.
install_deps_test.py SCRIPT"""
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

SCRIPT = sys.argv[1]
BOUND = 300


def make_wheel(folder, version, slow=False):
    """A package `toy` whose program prints its version."""
    name = f"toy-{version}.dist-info"
    files = {
        "toy.py": f"def main():\n    print('toy {version}')\n",
        f"{name}/METADATA": f"Metadata-Version: 2.1\nName: toy\nVersion: {version}\n",
        f"{name}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}/entry_points.txt": "[console_scripts]\ntoy = toy:main\n",
    }
    if slow:  # enough files that an install can be cut off in the middle
        files.update({f"toy_data/{i}.txt": "x" * 1000 for i in range(20000)})
    files[f"{name}/RECORD"] = "".join(f"{path},,\n" for path in files) + f"{name}/RECORD,,\n"
    with zipfile.ZipFile(f"{folder}/toy-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


class InstallDeps(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tessera-deps-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.cache = self.folder + "/cache with a blank"
        self.wheels = self.folder + "/wheels"
        os.makedirs(self.wheels)
        os.makedirs(self.cache)
        make_wheel(self.wheels, "1.0")
        self.environment = dict(os.environ, TESSERA_CACHE=self.cache, PIP_NO_INDEX="1", PIP_FIND_LINKS=self.wheels, PIP_NO_CACHE_DIR="1",
                                PIP_CONFIG_FILE="/dev/null", LC_ALL="C.UTF-8")

    def words(self, line):
        return ["bash", "-c", f"source {SCRIPT}; {line}"]

    def source(self, line, code=0):
        """Runs a line with the functions of the script."""
        done = subprocess.run(self.words(line), env=self.environment, capture_output=True, text=True, timeout=BOUND, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def toy(self):
        return subprocess.run([self.cache + "/set/bin/toy"], capture_output=True, text=True, timeout=BOUND)

    def test_a_set_from_its_making_to_its_next_list(self):
        # Two runs at once are after the same set: the second waits, then finds it there.
        line = "tier_build() { python_set set '1 KB' toy==1.0; sleep 1; }; main build"
        both = [subprocess.Popen(self.words(line), env=self.environment, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
                for _ in range(2)]
        said = sorted(process.communicate(timeout=BOUND)[0] for process in both)
        self.assertEqual([process.returncode for process in both], [0, 0])
        self.assertEqual(sum("install-deps: Python packages for set (1 KB): toy==1.0\n" in text for text in said), 1, said)
        self.assertEqual(sum("waiting for another install-deps" in text for text in said), 1, said)

        # Its programs know the name that the set has now, and not the one under which it was made.
        self.assertEqual((self.toy().returncode, self.toy().stdout), (0, "toy 1.0\n"))
        for script in glob.glob(self.cache + "/set/bin/*"):
            if os.path.isfile(script) and not os.path.islink(script):
                with open(script, encoding="utf-8") as file:
                    self.assertNotIn("set.new", file.read(), script)
        self.assertEqual(self.source("python_set set '1 KB' toy==1.0").stdout, "", "a second run does and says nothing")

        # A set that an older script made is mended.
        program = self.cache + "/set/bin/toy"
        with open(program, encoding="utf-8") as file:
            text = file.read()
        with open(program, "w", encoding="utf-8") as file:
            file.write(text.replace(self.cache + "/set/", self.cache + "/set.new/"))
        self.source("python_set set '1 KB' toy==1.0")
        self.assertEqual(self.toy().stdout, "toy 1.0\n")

        make_wheel(self.wheels, "2.0")
        self.source("python_set set '1 KB' toy==2.0")
        self.assertEqual(self.toy().stdout, "toy 2.0\n")
        self.assertEqual(sorted(os.listdir(self.cache)), [".lock", "set", "set.log"])

    def test_an_interrupted_run_is_made_good(self):
        make_wheel(self.wheels, "3.0", slow=True)
        process = subprocess.Popen(self.words("python_set set '1 KB' toy==3.0"), env=self.environment, start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + BOUND
        while not glob.glob(self.cache + "/set.new/lib/python*/site-packages/pip") and process.poll() is None:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=BOUND)
        self.assertFalse(os.path.exists(self.cache + "/set/.pins"))
        self.source("python_set set '1 KB' toy==3.0")
        self.assertEqual(self.toy().stdout, "toy 3.0\n")
        self.assertFalse(os.path.exists(self.cache + "/set.new"))

    def test_a_package_that_is_not_to_be_had(self):
        done = self.source("python_set set '1 KB' toy==9.9", code=1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("install-deps: pip could not install the set 'set' (toy==9.9): ERROR: ", done.stderr)
        self.assertFalse(os.path.exists(self.cache + "/set"))

    def fake(self, name, text):
        folder = self.folder + "/fake"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(f"{folder}/{name}", 0o755)
        self.environment["PATH"] = folder + ":" + os.environ["PATH"]

    def test_debian_packages(self):
        log = self.folder + "/said"
        self.fake("dpkg-query", 'for last; do :; done; [ "$last" = there ] && echo installed\n')
        self.fake("dpkg", "exit 0\n")
        self.fake("sudo", 'shift; exec "$@"\n')
        self.fake("apt-get", f'echo "$@" >>{log}; case "$*" in *update*) exit 0;; *nowhere*) echo "E: Unable to locate package nowhere"; exit 100;; esac\n')
        done = self.source("debian there missing other")
        self.assertEqual(done.stdout, "install-deps: Debian packages: missing other\n")
        with open(log, encoding="utf-8") as file:
            (line,) = file.read().splitlines()
        self.assertTrue(line.endswith(" missing other"), line)
        self.assertEqual(self.source("debian there").stdout, "")
        done = self.source("debian there nowhere", code=1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("apt-get could not install nowhere: E: Unable to locate package nowhere", done.stderr)

    def test_wrong_words(self):
        for words, part in ((["everything"], "'everything'"), ([], "''")):
            done = subprocess.run(["bash", SCRIPT, *words], env=self.environment, capture_output=True, text=True, timeout=BOUND)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn(part, done.stderr)
            self.assertIn("legal are build, demo, test, lint, bench, frameworks and rare", done.stderr)

    def test_a_cache_that_may_not_be_written(self):
        with open(self.folder + "/file", "w", encoding="utf-8"):
            pass
        self.environment["TESSERA_CACHE"] = self.folder + "/file/cache"
        done = subprocess.run(["bash", SCRIPT, "build"], env=self.environment, capture_output=True, text=True, timeout=BOUND)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("set TESSERA_CACHE to a folder that you may write", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
