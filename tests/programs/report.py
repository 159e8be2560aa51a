#!/usr/bin/env python3
"""report.py RESULTS TIER PAGE: writes the section of one tier of docs/compatibility.md from the results of a run.

Sections of other tiers stay as they are. Nothing that changes from run to run (times, pids) is written, so that a run
with the same outcome writes the same page.
"""
import json
import pathlib
import sys

TITLES = {
    "test": ("Every run (`make test`)", "make test"),
    "frameworks": ("Frameworks (`make test-frameworks`, in CI too)", "make test-frameworks"),
    "rare": ("By hand (`make test-frameworks-rare`)", "make test-frameworks-rare"),
}
HEAD = """# Programs that were run behind the fence

Written by the test runs themselves (`tests/programs/report.py`); do not edit. Each program is installed unchanged by its
package name and run twice on a simulated node: bare, and under `tessera run --mem …`. “Same” says that both gave the same
answers. Sizes and process lists differ by design: behind the fence a program sees its slice.
Device code does not run on the simulated driver (samples carry host twins of their kernels), so values are compared where
copies or host twins made them.
"""


def section(tier, results):
    title, _ = TITLES[tier]
    rows = ["", f"## {title}", "", "| program | version | bare | fenced | same | shown behind the fence |", "|---|---|---|---|---|---|"]
    for record in sorted(results, key=lambda r: r["program"].lower()):
        mark = {True: "yes", False: "**no**"}
        shown = "; ".join(record["shown"]).replace("|", "\\|") or "-"
        rows.append(f"| {record['program']} | {record['version']} | {mark[record['bare']]} | {mark[record['fenced']]} | "
                    f"{mark[record['same']]} | {shown} |")
    return "\n".join(rows) + "\n"


def main():
    folder, tier, page = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    results = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    results = [record for record in results if record["tier"] == tier]
    if not results:
        print(f"report.py: no results of tier {tier} in {folder}", file=sys.stderr)
        return 1
    old = page.read_text() if page.exists() else ""
    text = HEAD
    for each in TITLES:
        start, end = f"<!-- {each} -->", f"<!-- end of {each} -->"
        if each == tier:
            body = section(tier, results)
        elif start in old and end in old:
            body = old.split(start, 1)[1].split(end, 1)[0].lstrip("\n")
            body = "\n" + body if body else ""
        else:
            body = f"\n## {TITLES[each][0]}\n\nNot run yet: `{TITLES[each][1]}`.\n"
        text += f"\n{start}\n{body}{end}\n"
    page.write_text(text)
    print(f"report.py: {len(results)} programs of tier {tier} in {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
