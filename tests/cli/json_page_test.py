"""The JSON of every subcommand against the tables of docs/formats/cli-json.md: no key that is not there, no row that is not
printed, every value of the type that its row says. json_page_test.py TESSERA_SIM TESSERA, the page in JSON_PAGE."""
import json
import os
import re
import sys
import unittest

from machine import HOLDER, Machine

SIM, TESSERA = sys.argv[1:3]
ROOT = os.geteuid() == 0
TYPES = {"text": str, "bool": bool, "list": list, "object": dict, "null": type(None), "number": (int, float)}
# Rows that only a machine with such an event shows.
ONLY_AS_ROOT = ("findings[].",)


def read_page():
    """{schema: {path: set of types}}"""
    page, schemas, star = {}, [], []
    with open(os.environ["JSON_PAGE"], encoding="utf-8") as file:
        for line in file:
            if line.startswith("## "):
                schemas = re.findall(r"`(tessera\.[a-z-]+/\d+)`", line)
            row = re.match(r"\| `([^`]+)` \| ([a-z ]*)\|", line)
            if row is None:
                continue
            path, types = row.group(1), row.group(2).strip()
            for schema in schemas:
                rows = page.setdefault(schema, {})
                if path.endswith(".*"):
                    star.append((rows, path[:-1], re.search(r"as `([^`]+)\*`", line).group(1)))
                else:
                    rows[path] = set(types.split(" or "))
    for rows, to, source in star:
        for path, types in page["tessera.ps/1"].items():
            if path.startswith(source):
                rows[to + path[len(source):]] = types
    return page


def walk(value, path=""):
    """Every (path, value) of an answer; the elements of a list share one path."""
    if isinstance(value, dict):
        for key, member in value.items():
            here = f"{path}.{key}" if path else key
            yield here, member
            yield from walk(member, here)
    elif isinstance(value, list):
        for member in value:
            yield from walk(member, path + "[]")


class JsonPage(unittest.TestCase):
    def setUp(self):
        self.page = read_page()
        self.seen = {schema: set() for schema in self.page}
        self.machine = Machine(SIM, TESSERA)
        self.machine.__enter__()
        self.addCleanup(self.machine.__exit__)

    def look(self, answer):
        rows = self.page[answer["schema"]]
        for path, value in walk(answer):
            self.assertIn(path, rows, f"{answer['schema']}: a key that the page does not list")
            self.assertTrue(any(isinstance(value, TYPES[name]) and (name == "bool" or not isinstance(value, bool)) for name in rows[path]),
                            f"{answer['schema']}: {path} is {value!r}, the page says {rows[path]}")
            self.seen[answer["schema"]].add(path)
        return answer

    def test_every_key_and_every_row(self):
        machine = self.machine
        self.look(machine.json("ps"))  # before anything was promised
        self.look(machine.json("explain", "--mem", "100"))
        machine.hold(500, "--name", "chat", "--cores", "20")
        foreign = machine.start(sys.executable, HOLDER, "700")
        self.assertEqual(foreign.stdout.readline().strip(), "holding")
        if ROOT:
            cheat = machine.start(TESSERA, "run", "--mem", "1000", "--name", "cheat", "--", "sh", "-c",
                                  f"mount --bind /dev/null /etc/ld.so.preload && exec {sys.executable} {HOLDER} 3000")
            self.assertEqual(cheat.stdout.readline().strip(), "holding")
        for words in (("explain", "chat"), ("explain", "cheat") if ROOT else ("explain", "chat"), ("explain", "--mem", "90000"),
                      ("explain", "--mem", "100"), ("limit", "chat", "--mem", "3000", "--priority", "high"),
                      ("run", "--mem", "100", "--dry-run", "--", "true"), ("run", "--mem", "22000", "--dry-run", "--", "true")):
            self.look(json.loads(machine.cli("--output", "json", *words).stdout))
        broken = machine.environment["TESSERA_STATE"] + "/slices/0123456789abcdef"
        os.mkdir(broken)
        with open(broken + "/slice.json", "w", encoding="utf-8") as file:
            file.write('{"layout": 2}')
        for words in (("ps",), ("doctor",)):
            self.look(machine.json(*words))
        frames = machine.cli("top", "-n", "2", "--interval", "1", "--output", "json").stdout.splitlines()
        self.assertEqual(len(frames), 2)
        for frame in frames:
            self.look(json.loads(frame))
        for schema, rows in self.page.items():
            missing = {path for path in rows if path not in self.seen[schema] and (ROOT or not path.startswith(ONLY_AS_ROOT))}
            self.assertEqual(missing, set(), f"{schema}: rows of the page that nothing printed")

    def test_without_a_driver(self):
        import subprocess
        environment = dict(self.machine.environment, LD_LIBRARY_PATH=self.machine.folder)
        for words in (("ps",), ("doctor",), ("top", "-n", "1")):
            done = subprocess.run([TESSERA, *words, "--output", "json"], env=environment, capture_output=True, text=True, timeout=60)
            answer = self.look(json.loads(done.stdout))
            self.assertFalse(answer["driver"]["found"])
            self.assertTrue(answer["driver"]["error"])

    def test_problems_are_a_line_of_text_with_json_too(self):
        for words, code in ((("limit", "nobody", "--mem", "5"), 1), (("run", "--mem", "0", "--", "true"), 2), (("explain", "nobody"), 1)):
            answer = self.machine.cli(*words, "--output", "json") if words[0] != "run" else self.machine.cli("--output", "json", *words)
            self.assertEqual((answer.returncode, answer.stdout, answer.stderr.count("\n")), (code, "", 1), answer.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
