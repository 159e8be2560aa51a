#!/usr/bin/env python3
"""Writes the table of driver symbols that the coverage program is linked with: the entry points of entries.txt.
usage: list_linked.py ENTRIES_TXT OUT_CC"""
import sys

names = [line.strip() for line in open(sys.argv[1]) if line.startswith("cu")]
with open(sys.argv[2], "w") as out:
    out.write("#include <string>\n#include <utility>\n\nextern \"C\" {\n")
    for name in names:
        out.write(f'extern char linked_{name}[] __asm__("{name}");\n')
    out.write("}\n\nnamespace tessera::testing {\nvoid* LinkedFunction(const std::string& symbol) {\n"
              "  static const std::pair<const char*, void*> table[] = {\n")
    for name in names:
        out.write(f'      {{"{name}", linked_{name}}},\n')
    out.write("  };\n  for (const auto& [name, address] : table) {\n    if (symbol == name) return address;\n  }\n"
              "  return nullptr;\n}\n}  // namespace tessera::testing\n")
