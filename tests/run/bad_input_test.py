"""Values of options, commands, names and manifests that nobody can have meant: bad_input_case.py says what each refusal is."""

import os
import unittest

from bad_input_case import AsAUser, BadCase, CARDS, CORES, LONG, MEMORY, NAMES, NONE, shown
from run_case import ROOT

# What nobody can have meant as a size.
SIZES = ("0", "-1", "+5", "1.5", "0.5Gi", "1e3", "0x10", "8G", "8GB", "8000mb", "8 Gi", " 8", "8 ", "1,000", "huge", "", "16777217", "17000Gi",
         "99999999999999999999", LONG, "8\n9", "\x1b[31m8", "８０００", "8000;", "∞", "nan")
PERCENTS = ("0", "-1", "101", "30%", "1.5", "1e1", "many", "", "99999999999999999999", "1\n2")
COUNTS = ("0", "-1", "17", "1.5", "all", "", "99999999999999999999")
WORDS = ("HIGH", "hihg", "1", "", "low,high", "low\n")
BAD_NAMES = ("a/b", ".a", "a b", "a" * 64, "é", "a\nb", "", "../x")


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


class BadInput(BadCase):
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


@unittest.skipUnless(ROOT, "plays another user")
class BadInputOfAUser(AsAUser, BadInput):
    pass


del BadCase  # no tests of its own

if __name__ == "__main__":
    unittest.main(verbosity=2)
