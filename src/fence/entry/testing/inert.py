#!/usr/bin/env python3
"""A process that loads no driver does nothing because of the fence: system calls, output and exit status are compared.

  inert.py libtessera.so PROGRAM...
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

# What mapping one more library takes: open, read its header, look at it, map two segments and its zeroed memory, close.
ALLOWED = {"openat": 1, "read": 1, "fstat": 1, "newfstatat": 1, "pread64": 1, "mmap": 3, "close": 1, "mprotect": 1, "access": 1, "munmap": 1}


def trace(command, preload):
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    if preload:
        environment["LD_PRELOAD"] = preload
    with tempfile.NamedTemporaryFile() as log:
        # The preload is for the program, not for strace.
        settings = [f"-E{name}={value}" for name, value in environment.items()]
        result = subprocess.run(["strace", "-f", "-o", log.name, *settings, *command], capture_output=True, text=True,
                                env={"PATH": os.environ["PATH"]})
        calls = collections.Counter(re.findall(r"^\d+ +(\w+)\(", open(log.name).read(), re.M))
        names = re.findall(r'openat\([^"]*"([^"]*)"', open(log.name).read())
    return result, calls, names


def main():
    library, programs = sys.argv[1], [p.split() for p in sys.argv[2:]]
    failures = 0
    for program in programs:
        bare, bare_calls, bare_files = trace(program, None)
        fenced, fenced_calls, fenced_files = trace(program, library)
        added = fenced_calls - bare_calls
        excess = {n: c for n, c in added.items() if c > ALLOWED.get(n, 0)}
        files = set(fenced_files) - set(bare_files) - {library}
        problems = []
        if excess:
            problems.append(f"more system calls than mapping it takes: {excess}")
        if files:
            problems.append(f"opens {sorted(files)}")
        if (bare.returncode, bare.stdout, bare.stderr) != (fenced.returncode, fenced.stdout, fenced.stderr):
            problems.append(f"another result: {bare} / {fenced}")
        for problem in problems:
            print(f"FAIL {' '.join(program)}: {problem}")
        if not problems:
            print(f"{' '.join(program)}: {dict(added)}")
        failures += len(problems)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
