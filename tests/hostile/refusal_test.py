"""A slice that is meant but cannot be read refuses to start, and says the variable or field, its value and what is legal: no memory
at all, never memory without a limit."""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from hostile import FENCE, MIB, SIM, TESSERA, Case, main, program

SUCCESS, OUT_OF_MEMORY, OPERATING_SYSTEM = 0, 2, 304

NODE = "HOSTILE_TEST_NODE"
MEMORY = "CUDA_DEVICE_MEMORY_LIMIT"
CORES = "CUDA_DEVICE_SM_LIMIT"
MALFORMED_MEMORY = ("", " ", "0", "0m", "-1", "-1g", "+1g", "2GB", "2gb", "3gi", "3GiB", "1.5g", "1,5g", "010g", "0x10m", "1e3", "1 g", " 1g",
                    "1g ", "1g\n", "m", "g", "mg", "gm", "1mm", "1t", "NaN", "inf", "unlimited", "none", "max", "50%", "\u0661g", "1_000m",
                    "99999999999999999999", "18446744073709551616", "281474976710656", "262145g", "9" * 4000)
LEGAL_MEMORY = (("1000m", 1000), ("1000M", 1000), ("2g", 2048), ("2048000k", 2000), (str(1000 * MIB), 1000))
MALFORMED_CORES = ("", " ", "-1", "101", "1000", "30%", "0.3", "030", "1e1", "ten", "0x10", " 30", "30 ", "99999999999999999999")
MALFORMED_PRIORITY = ("", " ", "2", "-1", "high", "low", "01", "1 ", "0x1", "99999999999999999999")
MALFORMED_POLICY = ("", " ", "Force", "forced", "on", "1", "force ", "force,disable", "enable")


class Refusal(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="tessera-hostile-")
        os.chmod(cls.folder, 0o755)
        cls.environment = dict(os.environb)
        cls.environment[b"LD_PRELOAD"] = FENCE.encode()
        cls.environment[b"CUDA_DEVICE_MEMORY_SHARED_CACHE"] = (cls.folder + "/cache").encode()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def start(self, variables, mib=3000):
        """(result of cuInit, MiB granted, stderr)"""
        environment = dict(self.environment)
        environment.update({name.encode(): value.encode() for name, value in variables.items()})
        done = subprocess.run([program("try_init"), str(mib)], env=environment, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, (variables, done))
        result, granted = done.stdout.split()
        return int(result), int(granted), done.stderr.decode()

    def refused(self, variables, *named):
        result, granted, said = self.start(variables)
        self.assertEqual((result, granted), (OPERATING_SYSTEM, 0), (variables, said))
        self.assertEqual(said.count("\n"), 1, said)
        self.assertTrue(said.startswith("tessera: "), said)
        self.assertIn("legal is ", said)
        for text in named:
            self.assertIn(text, said)

    def malformed(self, name, values):
        for value in values:
            with self.subTest(variable=name, value=value[:40]):
                shown = "".join(c if c >= " " else "?" for c in value)[:80]
                self.refused({name: value}, f"{name}='{shown}")

    def test_memory_limit_of_all_cards(self):
        self.malformed(MEMORY, MALFORMED_MEMORY)

    def test_memory_limit_of_one_card(self):
        # The general limit is legal: the malformed one of a card must not fall back to it.
        for index in (0, 15):
            for value in MALFORMED_MEMORY[:12] + MALFORMED_MEMORY[-5:]:
                with self.subTest(index=index, value=value[:40]):
                    self.refused({MEMORY: "1g", f"{MEMORY}_{index}": value}, f"{MEMORY}_{index}='")

    def test_core_limit(self):
        self.malformed(CORES, MALFORMED_CORES)
        self.malformed(CORES + "_3", MALFORMED_CORES)

    def test_priority_and_core_policy(self):
        for name, values in (("CUDA_TASK_PRIORITY", MALFORMED_PRIORITY), ("GPU_CORE_UTILIZATION_POLICY", MALFORMED_POLICY)):
            for value in values:
                with self.subTest(variable=name, value=value):
                    self.refused({MEMORY: "1g", name: value}, f"{name}='{value}'")

    def test_a_limit_of_a_card_that_cannot_be_is_no_limit_of_none(self):
        # A limit whose name is misspelt would otherwise be a slice without a limit.
        for suffix in ("16", "17", "100", "00", "01", "-1", "0x0", "a", "", " 0", "all"):
            for base, value in ((MEMORY, "1g"), (CORES, "30")):
                with self.subTest(variable=f"{base}_{suffix}"):
                    self.refused({f"{base}_{suffix}": value}, f"{base}_{suffix}='{value}'", "0 to 15")

    def test_legal_values_hold(self):
        for value, mib in LEGAL_MEMORY:
            for name in (MEMORY, MEMORY + "_0"):
                with self.subTest(variable=name, value=value):
                    self.assertEqual(self.start({name: value}, mib + 1), (SUCCESS, 0, ""))
                    self.assertEqual(self.start({name: value}, mib - 500), (SUCCESS, mib - 500, ""))
        for value in ("0", "1", "100"):
            self.assertEqual(self.start({CORES: value})[:2], (SUCCESS, 3000))

    def test_the_cache_names_a_file_and_never_a_limit(self):
        cache = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
        for value in ("", " ", "relative", "./x", "~/x", "/" + "x" * 480, "/" + "x" * 5000):
            with self.subTest(refused=value[:40]):
                self.refused({MEMORY: "1g", cache: value}, f"{cache}='{value[:80]}", "legal is an absolute path")
        for value in ("/", "/proc/nothing/x", self.folder):
            with self.subTest(value=value[:40]):
                variables = {MEMORY: "1g", cache: value}
                self.assertEqual(self.start(variables, 1025)[:2], (SUCCESS, 0))

    # ---- the slice directory -------------------------------------------------------------------------------------------------

    def slice_directory(self):
        """A directory with a policy and a ledger that are in order, and what it takes to point a program at it."""
        if not hasattr(self, "template"):
            type(self).template = self.folder + "/template"
            ready = subprocess.run([TESSERA, "run", "--mem", "1000", "--", "sh", "-c", f"mkdir {self.template} && cp /run/tessera/policy /run/tessera/ledger {self.template}"],
                                   env=dict(os.environ, TESSERA_STATE=self.folder + "/promises"), capture_output=True, timeout=60)
            self.assertEqual(ready.returncode, 0, ready.stderr)
        folder = tempfile.mkdtemp(dir=self.folder)
        for name in ("policy", "ledger"):
            shutil.copy(f"{self.template}/{name}", folder)
        return folder

    def changed(self, name, offset, format_, *values):
        folder = self.slice_directory()
        with open(f"{folder}/{name}", "r+b") as file:
            file.seek(offset)
            file.write(struct.pack("<" + format_, *values))
        return folder

    def refused_directory(self, folder, name, *named):
        self.refused({"TESSERA_SLICE_DIR": folder}, f"{folder}/{name}", *named)

    def test_a_policy_in_order_is_taken(self):
        folder = self.slice_directory()
        self.assertEqual(self.start({"TESSERA_SLICE_DIR": folder}, 1001), (SUCCESS, 0, ""))
        self.assertEqual(self.start({"TESSERA_SLICE_DIR": folder}, 600), (SUCCESS, 600, ""))

    def test_versions(self):
        for name, layouts in (("policy", (0, 2, 3, 0xFFFFFFFF)), ("ledger", (0, 2, 0xFFFFFFFF))):
            for layout in layouts:
                with self.subTest(file=name, layout=layout):
                    self.refused_directory(self.changed(name, 8, "I", layout), name, f"layout is {layout}", "legal is 1")
            self.refused_directory(self.changed(name, 0, "Q", 0x3259_4c4f_5052_5354), name, "magic is")

    def test_short_files(self):
        for name, sizes in (("policy", (0, 1, 511, 512, 767, 5000, 5631)), ("ledger", (0, 1, 511, 512, 8191, 8192, 6299647))):
            for size in sizes:
                with self.subTest(file=name, size=size):
                    folder = self.slice_directory()
                    os.truncate(f"{folder}/{name}", size)
                    self.refused_directory(folder, name, " is ")

    def test_fields(self):
        huge = 0xFFFFFFFF
        rows = [("policy", 12, "I", huge, "file_bytes"), ("policy", 16, "I", huge, "cards_offset"), ("policy", 16, "I", 0, "cards_offset"),
                ("policy", 20, "I", 0, "card_stride"), ("policy", 20, "I", huge, "card_stride"), ("policy", 24, "I", 0, "card_count"),
                ("policy", 24, "I", 17, "card_count"), ("policy", 28, "I", 0, "gates_offset"), ("policy", 28, "I", huge, "gates_offset"),
                ("policy", 32, "I", 0, "gate_stride"), ("policy", 56, "I", 3, "core_policy"), ("policy", 60, "I", 3, "bypass_action"),
                ("policy", 512 + 16, "Q", 0, "limit_bytes"), ("policy", 512 + 16, "Q", 1 << 63, "limit_bytes"),
                ("policy", 512 + 24, "Q", 1 << 50, "ceiling_bytes"), ("policy", 512 + 40, "I", 0, "compute_percent"),
                ("policy", 512 + 40, "I", 101, "compute_percent"), ("policy", 512 + 44, "I", 2, "priority"),
                ("ledger", 12, "I", huge, "file_bytes"), ("ledger", 16, "I", huge, "cards_offset"), ("ledger", 20, "I", 64, "card_stride"),
                ("ledger", 24, "I", 0, "card_count"), ("ledger", 24, "I", 17, "card_count"), ("ledger", 28, "I", 0, "slots_offset"),
                ("ledger", 32, "I", 64, "slot_stride"), ("ledger", 32, "I", huge, "slot_stride"), ("ledger", 36, "I", 0, "slot_count"),
                ("ledger", 36, "I", 4097, "slot_count"), ("ledger", 40, "I", 9, "kinds")]
        for name, offset, format_, value, field in rows:
            with self.subTest(file=name, field=field, value=value):
                self.refused_directory(self.changed(name, offset, format_, value), name, f"{field} is ")
        self.refused_directory(self.changed("policy", 512, "QQ", 0, 0), "policy", "uuid is ")
        self.refused_directory(self.changed("policy", 64, "64s", b"x" * 64), "policy", "slice_id is ")

    def test_things_that_are_no_files(self):
        for name in ("policy", "ledger"):
            for make in (os.mkdir, os.mkfifo, lambda path: os.symlink(path, path), lambda path: os.symlink("/dev/zero", path)):
                folder = self.slice_directory()
                os.unlink(f"{folder}/{name}")
                make(f"{folder}/{name}")
                self.refused_directory(folder, name)
        folder = self.slice_directory()
        os.unlink(folder + "/ledger")
        self.refused_directory(folder, "ledger", "cannot be opened")
        os.unlink(folder + "/policy")
        self.refused({"TESSERA_SLICE_DIR": folder}, "holds no policy")
        self.refused({"TESSERA_SLICE_DIR": "/" + "x" * 600}, "TESSERA_SLICE_DIR")
        self.refused({"TESSERA_SLICE_DIR": ""}, "TESSERA_SLICE_DIR")
        self.refused({"TESSERA_SLICE_DIR": "/x" * 240}, "TESSERA_SLICE_DIR='/x/x", "holds no policy")

    def test_a_directory_or_policy_that_others_may_change_is_none(self):
        for name, said in ((".", "only root or this user may change"), ("policy", "may be changed by others")):
            with self.subTest(name):
                folder = self.slice_directory()
                os.chmod(f"{folder}/{name}", 0o777)
                self.refused({"TESSERA_SLICE_DIR": folder}, said)

    def test_a_refused_slice_is_not_rescued_by_other_variables(self):
        folder = self.changed("policy", 8, "I", 2)
        self.refused({"TESSERA_SLICE_DIR": folder, MEMORY: "3g"}, f"{folder}/policy")


if __name__ == "__main__":
    # On one simulated node as a whole: each of the hundreds of cases then costs one small process.
    if NODE not in os.environ:
        with tempfile.TemporaryDirectory(prefix="tessera-hostile-node-") as node:
            words = [SIM, "run", "--node", "a10g", "--state", node + "/node", "--", sys.executable, *sys.argv]
            sys.exit(subprocess.run(words, env=dict(os.environ, **{NODE: node}), check=False).returncode)
    main()
