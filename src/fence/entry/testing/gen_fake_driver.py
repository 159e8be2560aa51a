#!/usr/bin/env python3
"""Writes a driver whose every function returns its own number, for the tests of the routes.

  gen_fake_driver.py coverage.csv OUT_DIR

  fake_cuda.c, fake_nvml.c  the two libraries; cuGetProcAddress follows the versions of coverage.csv
  entries.inc               one ENTRY(name, id, hooked, library, since, per_thread, base) a row, for the test programs
  linked.inc                a table of the addresses that a program linked with the libraries sees
"""

import csv
import pathlib
import sys

# Written by hand below, not numbered.
OWN = {"cuGetProcAddress", "cuGetProcAddress_v2", "nvmlErrorString"}

FAKE_GPA = """
#include <string.h>
struct row { const char* base; int since; int per_thread; void* function; };
static const struct row rows[] = {
%s
};
/* What the driver documents: the newest ABI that is not newer than the version asked for, per-thread form on request. */
static int look_up(const char* symbol, void** out, int version, unsigned long long flags, int* status) {
  const struct row* plain = 0; const struct row* thread = 0; int any = 0;
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; ++i) {
    if (strcmp(rows[i].base, symbol) != 0) continue;
    any = 1;
    if (rows[i].since > version) continue;
    const struct row** place = rows[i].per_thread ? &thread : &plain;
    if (*place == 0 || rows[i].since > (*place)->since) *place = &rows[i];
  }
  const struct row* best = (flags & 2) && thread ? thread : plain;
  *out = best ? best->function : 0;
  if (status) *status = best ? 0 : any ? 2 : 1;
  return best ? 0 : 500;
}
int cuGetProcAddress_v2(const char* symbol, void** out, int version, unsigned long long flags, int* status) {
  if (symbol == 0 || out == 0) return 1;
  return look_up(symbol, out, version, flags, status);
}
int cuGetProcAddress(const char* symbol, void** out, int version, unsigned long long flags) {
  if (symbol == 0 || out == 0) return 1;
  return look_up(symbol, out, version, flags, 0);
}
/* A side door that no fence stands before. */
int fake_get_proc_address(const char* symbol, void** out, int version, unsigned long long flags) {
  return look_up(symbol, out, version, flags, 0);
}
"""


def main():
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    rows = list(csv.DictReader(open(sys.argv[1])))
    entries, linked = [], []
    text = {"cuda": [], "nvml": []}
    for number, row in enumerate(rows, 1000):
        name, library = row["name"], row["library"]
        hooked = int(row["decision"] == "hook")
        since = row["since"] or 0
        thread = int(bool(row["per_thread"]))
        entries.append(f'ENTRY({name}, {number}, {hooked}, {library}, {since}, {thread}, {row["base"]})')
        linked.append(f"LINKED({name}, {number}, {hooked})")
        if name not in OWN:
            # Two names may not share one address, which a linker could otherwise arrange.
            text[library].append(f"int {name}(void) {{ return {number}; }}")
    cuda_rows = [r for r in rows if r["library"] == "cuda"]
    declarations = "\n".join(f"int {n}();" for n in ("cuGetProcAddress", "cuGetProcAddress_v2"))
    table = "\n".join(
        f'  {{"{r["base"]}", {r["since"]}, {int(bool(r["per_thread"]))}, (void*)&{r["name"]}}},' for r in cuda_rows
    )
    side_door = "\n".join(f'  {{"{r["name"]}", (void*)&{r["name"]}}},' for r in cuda_rows)
    (out / "fake_cuda.c").write_text(
        "\n".join(text["cuda"]) + "\n" + declarations + FAKE_GPA % table
        + "static const struct { const char* name; void* function; } all[] = {\n" + side_door + "\n};\n"
        "void* fake_address(const char* name) {\n"
        "  for (unsigned i = 0; i < sizeof all / sizeof *all; ++i)\n"
        "    if (strcmp(all[i].name, name) == 0) return all[i].function;\n"
        "  return 0;\n}\n"
    )
    (out / "fake_nvml.c").write_text(
        "\n".join(text["nvml"]) + '\nconst char* nvmlErrorString(int e) { (void)e; return "fake"; }\n'
    )
    (out / "entries.inc").write_text("\n".join(entries) + "\n")
    (out / "linked.inc").write_text("\n".join(linked) + "\n")


if __name__ == "__main__":
    main()
