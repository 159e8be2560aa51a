"""The quiet neighbour of the demo: ctranslate2, a real inference engine, with some of its arrays on the card.

translator.py MIB. Reads one command per line, as samples/greedy.cu does: info, check, run CMD, quit.
"""
import subprocess
import sys

import ctranslate2
import numpy
from cuda.bindings import runtime

BLOCK_MIB = 256
count = max(1, int(sys.argv[1]) // BLOCK_MIB)
numbers = numpy.arange(BLOCK_MIB << 18, dtype=numpy.float32)
held = [ctranslate2.StorageView.from_array(numbers).to_device(ctranslate2.Device.cuda) for _ in range(count)]
print(f"ready {count * BLOCK_MIB}", flush=True)
for line in sys.stdin:
    command = line.rstrip("\n")
    if command == "info":
        _, free, total = runtime.cudaMemGetInfo()
        print(f"info {total >> 20} {free >> 20}", flush=True)
    elif command == "check":
        right = all((numpy.array(view.to_device(ctranslate2.Device.cpu)) == numbers).all() for view in held)
        print("right" if right else "wrong", flush=True)
    elif command.startswith("run "):
        done = subprocess.run(command[4:], shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        for text in done.stdout.splitlines():
            print(f"| {text}")
        print(f"ran {done.returncode}", flush=True)
    elif command == "quit":
        break
    else:
        print("unknown command", flush=True)
