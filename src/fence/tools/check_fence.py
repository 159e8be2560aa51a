#!/usr/bin/env python3
"""What the built library must be, so that it can be loaded into any process of any glibc since 2.17.

  check_fence.py libtessera.so exports.txt abi.x86_64.txt

Prints one line for each rule that is broken; exit status 1 if there is one.
"""

import pathlib
import re
import subprocess
import sys

# Stripped size that a start of every process may cost. The budget of 0.05 ms at load is measured by the benchmarks.
MOST_STRIPPED_BYTES = 400_000


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def version(text):
    return tuple(int(part) for part in text.split("_")[1].split("."))


def main():
    library, exports, abi = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    broken = []
    dynamic = run("readelf", "-dW", library)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    if needed != ["libc.so.6"]:
        broken.append(f"NEEDED is {needed}, allowed is ['libc.so.6']")
    for tag in ("TEXTREL", "INIT)", "FINI)", "INIT_ARRAY", "FINI_ARRAY", "RPATH", "RUNPATH"):
        if f"({tag}" in dynamic:
            broken.append(f"the dynamic section has {tag.rstrip(')')}: nothing may run or be searched at load")
    if re.search(r"\(FLAGS\).*SYMBOLIC", dynamic) or "(SYMBOLIC)" in dynamic:
        broken.append("marked SYMBOLIC: its own RTLD_DEFAULT would not be the program's")
    if "NODELETE" not in dynamic:
        broken.append("not marked NODELETE: a dlclose would unmap code that others hold pointers to")
    for line in run("readelf", "-lW", library).splitlines():
        if "GNU_STACK" in line and "RWE" in line:
            broken.append("the stack is executable")
        if re.match(r"\s*TLS\s", line) and "STATIC_TLS" not in dynamic:
            broken.append("thread-local storage that is not initial-exec")

    listed = {s for line in abi.read_text().splitlines() for s in line.split("#")[0].split()[2:]}
    exported, versions = set(), {}
    for line in run("nm", "-D", "--with-symbol-versions", library).splitlines():
        fields = line.split()
        kind, name = fields[-2], fields[-1]
        plain, _, tag = name.partition("@")
        tag = tag.lstrip("@")
        if kind in "UwvV":
            if plain not in listed:
                broken.append(f"imports {plain}, which {abi.name} does not list")
            if not tag.startswith("GLIBC_") or version(tag) > (2, 17):
                broken.append(f"imports {name}: newer than GLIBC_2.17")
            continue
        if kind == "A":
            continue  # the names of the versions themselves
        exported.add(plain)
        if kind == "W":
            broken.append(f"{plain} is weak: another library's definition could take its place")
        versions.setdefault(plain, set()).add((tag, "@@" in name))
    reviewed = set(exports.read_text().split())
    for name in sorted(exported - reviewed):
        broken.append(f"exports {name}, which is not in the reviewed list")
    for name in sorted(reviewed - exported):
        broken.append(f"does not export {name}")
    for name in ("dlsym", "dlvsym"):
        if any(default for _, default in versions.get(name, ())):
            broken.append(f"{name} has a default version: musl programs would be given it")

    stripped = pathlib.Path(library + ".stripped")
    subprocess.run(["strip", "-o", stripped, library], check=True)
    size = stripped.stat().st_size
    stripped.unlink()
    if size > MOST_STRIPPED_BYTES:
        broken.append(f"{size} bytes stripped, allowed are {MOST_STRIPPED_BYTES}")
    for line in broken:
        print(f"{library}: {line}")
    if not broken:
        print(f"{library}: {size} bytes stripped, {len(exported)} exports, needs libc.so.6 only")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
