#!/usr/bin/env python3
"""Writes the table of driver symbols that the coverage program is linked with: each hooked name of the fence's generated
list.  usage: list_linked.py COVERAGE_CSV OUT_CC"""
import csv
import sys

rows = [row for row in csv.DictReader(open(sys.argv[1])) if row["library"] == "cuda" and row["decision"] == "hook"]
with open(sys.argv[2], "w") as out:
    out.write("#include <string>\n#include <utility>\n\nextern \"C\" {\n")
    for row in rows:
        out.write(f'extern char linked_{row["name"]}[] __asm__("{row["name"]}");\n')
    out.write("}\n\nnamespace tessera::testing {\nvoid* LinkedFunction(const std::string& symbol) {\n"
              "  static const std::pair<const char*, void*> table[] = {\n")
    for row in rows:
        out.write(f'      {{"{row["name"]}", linked_{row["name"]}}},\n')
    out.write("  };\n  for (const auto& [name, address] : table) {\n    if (symbol == name) return address;\n  }\n"
              "  return nullptr;\n}\n}  // namespace tessera::testing\n")
