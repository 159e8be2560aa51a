#!/usr/bin/env python3
"""check_tested.py EXPORTS SOURCE_DIR: every entry point of the driver is named in some test of the driver or of the fence; a
per-thread form counts with its plain one. Prints those that are not; exit status 1 if there are any."""
import pathlib
import re
import sys

exports, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
TESTS = ("src/sim/cuda/*_test.cc", "src/sim/cuda/testing/*", "tests/integration/**/*.cc", "tests/integration/**/*.txt")

named = set()
for pattern in TESTS:
    for file in root.glob(pattern):
        named.update(re.findall(r"\bcu[A-Z]\w+", file.read_text(errors="replace")))
entries = exports.read_text().split()
untested = [name for name in entries if name not in named and re.sub(r"_(ptsz|ptds)$", "", name) not in named]
for name in untested:
    print(f"no test calls {name}")
print(f"{len(entries) - len(untested)} of {len(entries)} entry points are called by a test")
sys.exit(1 if untested else 0)
