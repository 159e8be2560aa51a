"""Rows of a benchmark: printed as a table and written to build/bench/NAME.json.

A row: name, unit, target (the most that `got` may be), got, bare (the bare driver in the same run), peer (a figure of
another system and where it comes from), ok, how (what was measured, in words). A row without target only informs. A missed
row has a reason as well."""
import json
import os
import sys


def text(value):
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


class Table:
    def __init__(self, name, landed_file):
        self.name = name
        self.rows = []
        self.how = None
        self.landed = {}
        if os.path.exists(landed_file):
            with open(landed_file) as lines:
                self.landed = {row["name"]: row["got"] for row in json.load(lines)["tables"].get(name, [])}

    def measured(self, how):
        """Says how the rows that follow were measured."""
        self.how = how

    def add(self, name, unit, got, bare=None, target=None, peer=None, reason=None):
        ok = target is None or got <= target
        row = {"name": name, "unit": unit, "target": target, "got": round(got, 3),
               "bare": None if bare is None else round(bare, 3), "peer": peer, "ok": ok, "how": self.how}
        if not ok:
            row["reason"] = reason or "costs more than it should here"
        self.rows.append(row)

    def finish(self, out_directory):
        os.makedirs(out_directory, exist_ok=True)
        with open(os.path.join(out_directory, self.name + ".json"), "w") as out:
            json.dump(self.rows, out, indent=1)
            out.write("\n")
        how = None
        for row in self.rows:
            if row["how"] != how:
                how = row["how"]
                print(f"\n{how}")
                print(f"  {'what':50} {'unit':5} {'target':>7} {'this run':>9} {'landed':>8} {'bare':>8}  {'peer':16} ok")
            verdict = "-" if row["target"] is None else "yes" if row["ok"] else "MISS: " + row["reason"]
            print(f"  {row['name']:50} {row['unit']:5} {text(row['target']):>7} {text(row['got']):>9} "
                  f"{text(self.landed.get(row['name'])):>8} {text(row['bare']):>8}  {text(row['peer']):16} {verdict}")
        missed = [row for row in self.rows if not row["ok"]]
        judged = [row for row in self.rows if row["target"] is not None]
        print(f"\n{len(judged) - len(missed)} of {len(judged)} targets met" + (f", {len(missed)} missed" if missed else ""))
        sys.stdout.flush()
        return 0
