"""Rows of a benchmark: printed as a table and written to build/bench/NAME.json.

A row: name, unit, target (the most that `got` may be), got, bare (the bare driver in the same run), peer (a figure of
another system and where it comes from), ok. A row without target only informs."""
import json
import os
import sys


class Table:
    def __init__(self, name, landed_file):
        self.name = name
        self.rows = []
        self.landed = {}
        if os.path.exists(landed_file):
            with open(landed_file) as lines:
                self.landed = {row["name"]: row["got"] for row in json.load(lines).get(name, [])}

    def add(self, name, unit, got, bare=None, target=None, peer=None, reason=None):
        ok = target is None or got <= target
        self.rows.append({"name": name, "unit": unit, "target": target, "got": round(got, 3),
                          "bare": None if bare is None else round(bare, 3), "peer": peer, "ok": ok,
                          **({} if ok or reason is None else {"reason": reason})})

    def finish(self, out_directory):
        os.makedirs(out_directory, exist_ok=True)
        with open(os.path.join(out_directory, self.name + ".json"), "w") as out:
            json.dump(self.rows, out, indent=1)
            out.write("\n")

        def text(value):
            return "-" if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)

        print(f"{'what the fence adds':52} {'unit':5} {'target':>8} {'this run':>9} {'landed':>8} {'bare':>9}  peer")
        for row in self.rows:
            verdict = "" if row["ok"] else "  MISS" + (": " + row["reason"] if "reason" in row else "")
            print(f"{row['name']:52} {row['unit']:5} {text(row['target']):>8} {text(row['got']):>9} "
                  f"{text(self.landed.get(row['name'])):>8} {text(row['bare']):>9}  {text(row['peer'])}{verdict}")
        missed = [row for row in self.rows if not row["ok"]]
        judged = [row for row in self.rows if row["target"] is not None]
        print(f"{len(judged) - len(missed)} of {len(judged)} targets met" + (f", {len(missed)} missed" if missed else ""))
        sys.stdout.flush()
        return 0
