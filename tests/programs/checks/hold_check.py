"""Holds card memory. hold_check.py MIB FILE: until FILE is gone. hold_check.py MIB --nvml: says what NVML lists, ends."""
import json
import os
import sys
import time

from cuda.bindings import driver

mib = int(sys.argv[1])
code, = driver.cuInit(0)
assert code == 0, code
_, card = driver.cuDeviceGet(0)
_, context = driver.cuDevicePrimaryCtxRetain(card)
driver.cuCtxSetCurrent(context)
code, memory = driver.cuMemAlloc(mib << 20)
if code != 0:
    print(f"refused {code.name}", flush=True)
    sys.exit(1)
if sys.argv[2] == "--nvml":
    import pynvml
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    print(json.dumps({"saw": {"pid": os.getpid(), "processes": [
        {"pid": p.pid, "mib": (p.usedGpuMemory or 0) / (1 << 20)} for p in listed]}}))
else:
    print(f"holding {os.getpid()}", flush=True)
    while os.path.exists(sys.argv[2]):
        time.sleep(0.02)
