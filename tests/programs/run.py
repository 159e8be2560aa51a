#!/usr/bin/env python3
"""run.py --config FILE [CASE...] | --list [--tier TIER]: real programs on a simulated node, bare and behind the fence."""
import argparse
import importlib
import sys

sys.dont_write_bytecode = True
import harness  # noqa: E402

for module in ("samples", "python_programs", "nvml_tools", "torch", "libraries", "llama", "rare"):
    importlib.import_module(f"cases.{module}_cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", help="programs.json as CMake wrote it")
    parser.add_argument("--list", action="store_true", help="names of the cases, one per line")
    parser.add_argument("--tier", choices=["test", "frameworks", "rare"])
    parser.add_argument("--inside", choices=["bare", "fenced"], help="used by the program itself")
    parser.add_argument("--out", help="used by the program itself")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()

    if arguments.list:
        for chosen in harness.CASES.values():
            if arguments.tier in (None, chosen.tier):
                print(f"{chosen.name} {chosen.timeout}")
        return 0
    config = harness.Config.load(arguments.config)
    if arguments.inside:
        harness.run_inside(config, arguments.cases[0], arguments.inside, arguments.out)
        return 0
    names = arguments.cases or [c.name for c in harness.CASES.values() if arguments.tier in (None, c.tier)]
    unknown = [name for name in names if name not in harness.CASES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; --list shows them")
    good = [harness.run_case(config, arguments.config, name) for name in names]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
