#!/usr/bin/env python3
"""check_documented.py TESSERA_SIM SOURCE_DIR: README.md of this folder names every field of a node file, every option and word of
`tessera-sim inject`, and its node starts. Prints what is missing; exit status 1 if anything is."""
import pathlib
import re
import subprocess
import sys
import tempfile

tool, here = sys.argv[1], pathlib.Path(sys.argv[2])
readme = (here / "README.md").read_text()
example = re.search(r"```yaml\n(.*?)```", readme, re.S).group(1)
missing = []


def strings(text):
    return re.findall(r'"([^"\n]+)"', text)


reader = "".join((here / "nodes" / name).read_text() for name in ("node_description.cc", "card_fields.cc"))
for fields in re.findall(r"fields\.Allow\(\{(.*?)\}\)", reader, re.S):
    missing += [f"field {name}" for name in strings(fields) if not re.search(rf"\b{name}:", example)]
main = (here / "tool/main.cc").read_text()
inject = main[main.index("void AddInject"):main.index("int Main")]
words = re.findall(r'add_subcommand\(\s*"([a-z]+)"', inject) + re.findall(r'add_option\("(--[a-z-]+)"', inject)
missing += [f"inject {word}" for word in words if word not in readme]
throttle = re.search(r"kThrottle\[\] = \{(.*?)\};", (here / "tool/inject.cc").read_text(), re.S).group(1)
missing += [f"throttle {word}" for word in strings(throttle) if f"`{word}`" not in readme]
for name in missing:
    print(f"README.md says nothing of {name}")
with tempfile.TemporaryDirectory() as folder:
    node = pathlib.Path(folder) / "node.yaml"
    node.write_text(example)
    done = subprocess.run([tool, "run", "--no-namespace", "--node", str(node), "--", tool, "show"], capture_output=True, text=True,
                          timeout=60)
    starts = done.returncode == 0 and "3g.40gb" in done.stdout
    if not starts:
        print(f"the node of README.md does not start: {done.stderr}")
sys.exit(0 if starts and not missing else 1)
