"""README.md of this folder: every case has a verdict and, unless only a cluster can show it, a test that exists."""
import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
VERDICTS = ("prevented", "detected", "neither", "cluster")
# Groups whose numbers must be complete: prefix -> last number.
COMPLETE = {"C1.": 17, "C2.": 34, "C6.": 21, "A": 20, "G": 12, "H": 8, "M": 10, "S": 9, "T": 39}


def rows():
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if len(cells) == 3 and re.match(r"[A-Z][0-9]", cells[0]):
                yield cells


def ctest_names(build):
    text = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True, timeout=60).stdout
    return set(re.findall(r"^ *Test +#\d+: (\S+)", text, re.M))


def is_there(test, names):
    if ":" not in test:
        return test in names
    path, name = test.split(":")
    for folder in ("", "tests"):
        full = os.path.join(TREE, folder, path)
        if os.path.exists(full):
            with open(full, encoding="utf-8") as file:
                return re.search(rf"\b{name}\b", file.read()) is not None
    return False


class Table(unittest.TestCase):
    def test_every_row_has_a_verdict_and_a_test_that_exists(self):
        names = ctest_names(os.path.join(sys.argv[3], "..", ".."))
        for case, verdict, shown in rows():
            with self.subTest(case=case):
                self.assertIn(verdict, VERDICTS)
                tests = re.findall(r"`([^`]+)`", shown)
                self.assertTrue(tests or verdict == "cluster", shown)
                for test in tests:
                    self.assertTrue(is_there(test, names), test)

    def test_no_row_is_missing(self):
        found = [case.split()[0] for case, _, _ in rows()]
        self.assertEqual(len(found), len(set(found)), "a case stands there twice")
        self.assertEqual(set(found), {f"{prefix}{number}" for prefix, last in COMPLETE.items() for number in range(1, last + 1)})

    def test_what_is_neither_is_said(self):
        with open(os.path.join(TREE, "docs", "security.md"), encoding="utf-8") as file:
            neither = file.read().split("## Neither")[1]
        for word in ("MPS", "Compute", "foreign", "Faults", "Side channels", "longjmp"):
            self.assertIn(word, neither)


if __name__ == "__main__":
    counts = {verdict: sum(1 for _, v, _ in rows() if v == verdict) for verdict in VERDICTS}
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), flush=True)
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
