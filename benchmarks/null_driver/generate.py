#!/usr/bin/env python3
"""Writes the entry points of the null driver that do nothing: one exported label for each name of cuda.h that
null_driver.cc does not define itself, all of them `return CUDA_SUCCESS`, and the name table for cuGetProcAddress.

usage: generate.py CUDA_H NULL_DRIVER_CC OUT_S OUT_INC
"""
import re
import sys


def names_of_header(path):
    text = open(path).read()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    plain = set(re.findall(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))
    renamed = set(re.findall(r"#define\s+cu\w+\s+(cu\w+_v\d+\w*)", text))
    per_thread = set()
    for suffix in ("PTSZ", "PTDS"):
        for base in re.findall(r"__CUDA_API_%s\((cu\w+)\)" % suffix, text):
            per_thread.add(base + "_" + suffix.lower())
            plain.add(base)
    return {n for n in plain | renamed | per_thread if not n.endswith("_st")}


def main():
    header, source, out_asm, out_table = sys.argv[1:]
    own = set(re.findall(r"^NULL_API\((cu\w+)\)", open(source).read(), flags=re.M))
    names = sorted(names_of_header(header) | own)
    if len(names) < 600:
        sys.exit(f"{header}: only {len(names)} driver names found; expected more than 600")
    # Each label needs code of its own, or all names would share one address.
    with open(out_asm, "w") as out:
        out.write('.section .note.GNU-stack,"",@progbits\n.text\n')
        for name in names:
            if name not in own:
                out.write(f".globl {name}\n.type {name},@function\n.p2align 4\n"
                          f"{name}:\n  xorl %eax, %eax\n  ret\n.size {name}, .-{name}\n")
    with open(out_table, "w") as out:
        for name in names:
            out.write(f'NAME("{name}", {name})\n')


if __name__ == "__main__":
    main()
