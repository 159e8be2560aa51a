#!/usr/bin/env python3
"""Builds stub libraries to link the fence against, from abi.MACHINE.txt.

  make_stubs.py ABI_FILE OUT_DIR C_COMPILER

The stubs define the listed symbols with the listed versions and nothing else, so that the library binds to versions that every
glibc since 2.17 has, on whatever machine it is built, and an unlisted import fails the link.
"""

import pathlib
import subprocess
import sys

# Data symbols need the size that libc gives them.
DATA = {"environ": "char **environ;"}


def main():
    abi, out, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    libraries = {}
    for line in abi.read_text().splitlines():
        line = line.split("#")[0].split()
        if line:
            libraries.setdefault(line[0], []).append((line[1], line[2:]))
    out.mkdir(parents=True, exist_ok=True)
    for library, versions in libraries.items():
        symbols = [s for _, names in versions for s in names]
        source = out / (library + ".c")
        source.write_text("\n".join(DATA.get(s, f"void {s}(void) {{}}") for s in symbols) + "\n")
        script = out / (library + ".map")
        script.write_text("".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in versions))
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-w", f"-Wl,-soname,{library}",
             f"-Wl,--version-script={script}", "-o", str(out / library), str(source)],
            check=True,
        )


if __name__ == "__main__":
    main()
