#!/usr/bin/env python3
"""same_output.py libtessera.so PROGRAM...: each program says and returns the same with and without the preload."""

import os
import subprocess
import sys

failures = 0
for program in sys.argv[2:]:
    results = []
    for preload in (None, sys.argv[1]):
        environment = {"PATH": os.environ["PATH"]} | ({"LD_PRELOAD": preload} if preload else {})
        done = subprocess.run(program.split(), env=environment, capture_output=True, text=True)
        results.append((done.returncode, done.stdout, done.stderr))
    if results[0] != results[1] or results[0][0] != 0:
        failures += 1
        print(f"FAIL {program}: {results[0]} / {results[1]}")
sys.exit(1 if failures else 0)
