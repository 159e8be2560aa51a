#!/usr/bin/env python3
"""Keeps the tables of the last run as the ones that later runs are compared with.

usage: land.py BENCH_DIRECTORY LANDED_JSON   (scripts/bench --land)"""
import datetime
import glob
import json
import os
import subprocess
import sys


def processor():
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def main():
    directory, landed = sys.argv[1:]
    tables = {}
    for path in sorted(glob.glob(os.path.join(directory, "*.json"))):
        with open(path) as rows:
            tables[os.path.splitext(os.path.basename(path))[0]] = json.load(rows)
    if not tables:
        sys.exit(f"land.py: {directory} holds no table; run `make bench` first")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with open(landed, "w") as out:
        json.dump({"commit": commit, "date": datetime.date.today().isoformat(), "processor": processor(),
                   "cores": os.cpu_count(), "tables": tables}, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
