#!/usr/bin/env python3
"""tool_test.py TESSERA_SIM: the tool as people use it. Prints one line per failed check; exit status 1 if any failed."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOOL = sys.argv[1]
FAILED = []
USE_CARD = """
import ctypes, os, sys
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
count = ctypes.c_uint(0)
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
print(count.value)
"""


def call(*arguments, env=None, user=None, timeout=60, text=None):
    return subprocess.run(arguments, capture_output=True, text=True, env=env, user=user, group=user,
                          extra_groups=[] if user else None, timeout=timeout, input=text, cwd="/")


def check(what, good, detail=""):
    if not good:
        FAILED.append(what)
        print(f"FAILED {what}: {detail}")


def refused(what, says, *arguments, status=1):
    done = call(TOOL, *arguments)
    check(what, done.returncode == status and says in done.stderr and done.stderr.count("\n") == 1,
          f"status {done.returncode}, said {done.stderr!r}")


def test_passes_through(folder):
    check("exit status", call(TOOL, "run", "--", "sh", "-c", "exit 7").returncode == 7)
    check("signal", call(TOOL, "run", "--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM)
    check("standard input", call(TOOL, "run", "--", "cat", text="hello").stdout == "hello")
    check("not found", call(TOOL, "run", "--", "/nonexistent/x").returncode == 127)
    check("not a program", call(TOOL, "run", "--", "/etc/passwd").returncode == 126)
    done = call(TOOL, "run", "--no-namespace", "--", "sh", "-c", "kill -TERM $$")
    check("signal without a namespace", done.returncode == -signal.SIGTERM, done)
    with subprocess.Popen([TOOL, "run", "--no-namespace", "--", "sleep", "60"], stderr=subprocess.PIPE) as waiting:
        waiting.stderr.readline()
        time.sleep(0.2)
        waiting.send_signal(signal.SIGTERM)
        check("a signal reaches the command", waiting.wait(20) == -signal.SIGTERM)
    if os.geteuid() == 0:  # in a /dev/shm of its own: others may use the machine's
        ours = "mount -t tmpfs none /dev/shm && {0} run -- true && {0} run --no-namespace -- true; ls -A /dev/shm"
        done = call("unshare", "-m", "sh", "-c", ours.format(TOOL))
        check("nothing left behind", done.returncode == 0 and done.stdout == "", done)


def test_finds_the_driver(folder):
    for name, prefix in (("plain", []), ("env -i", ["env", "-i"])):
        done = call(TOOL, "run", "--node", "two-a10g", "--", *prefix, sys.executable, "-c", USE_CARD)
        check(f"driver found, {name}", done.stdout == "2\n" and not done.stderr, done)
    done = call(TOOL, "run", "--no-namespace", "--", sys.executable, "-c", USE_CARD)
    check("driver found by environment", done.stdout == "1\n" and done.stderr.count("\n") == 1, done)
    done = call(TOOL, "run", "--", "sh", "-c", "test -e /dev/nvidiactl && test -e /dev/nvidia0 && echo x >/dev/null")
    check("device files", done.returncode == 0, done)
    check("the host has none", not os.path.exists("/run/tessera-sim/node"))
    if os.geteuid() == 0:
        public = pathlib.Path(folder) / "public"
        shutil.copytree(pathlib.Path(TOOL).parent.parent, public)
        os.chmod(folder, 0o755)
        done = call(str(public / "bin/tessera-sim"), "run", "--", "env", "-i", "sh", "-c",
                    "id -u; grep -c CapEff.*0000000000000000 /proc/self/status; test -e /run/tessera-sim/node && echo node",
                    user=65534)
        check("without root", done.stdout == "65534\n1\nnode\n", done)


def test_state_is_shared(folder):
    state = f"{folder}/node"
    hold = ("import ctypes,time; c=ctypes.CDLL('libcuda.so.1'); c.cuInit(0); x=ctypes.c_void_p(); c.cuCtxCreate_v2(ctypes.byref(x),0,0);"
            "p=ctypes.c_uint64(); assert c.cuMemAlloc_v2(ctypes.byref(p),ctypes.c_size_t(1<<30))==0; print('ready',flush=True); time.sleep(60)")
    with subprocess.Popen([TOOL, "run", "--state", state, "--", sys.executable, "-c", hold], stdout=subprocess.PIPE,
                          text=True) as holder:
        ready = holder.stdout.readline() == "ready\n"
        check("a program takes memory", ready)
        shown = json.loads(call(TOOL, "show", "--state", state, "--output", "json").stdout)
        users = shown["cards"][0]["processes"]
        check("shown by pid", [u["pid"] for u in users] == [holder.pid] and users[0]["bytes"] >= 1 << 30, shown)
        check("in text too", f"pid {holder.pid}" in call(TOOL, "show", "--state", state).stdout)
        inside = call(TOOL, "run", "--state", state, "--", TOOL, "show", "--output", "json")
        check("joined", json.loads(inside.stdout)["cards"][0]["used_bytes"] >= 1 << 30, inside)
        holder.kill()
        holder.wait()
    shown = json.loads(call(TOOL, "show", "--state", state, "--output", "json").stdout)
    check("given back after SIGKILL", shown["cards"][0]["used_bytes"] == 0, shown)


USE_MIG = """
import ctypes, os
from ctypes import byref, c_size_t, c_ulonglong, c_void_p
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
context, pointer, free, total = c_void_p(), c_ulonglong(), c_size_t(), c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(byref(context), 0, 0) == 0
first = cuda.cuMemAlloc_v2(byref(pointer), c_size_t(5 << 30))
second = cuda.cuMemAlloc_v2(byref(pointer), c_size_t(5 << 30))
cuda.cuMemGetInfo_v2(byref(free), byref(total))
card, mig, memory = c_void_p(), c_void_p(), (c_ulonglong * 3)()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(card)) == 0
used = []
for index in range(3):
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index, byref(mig)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(mig, memory) == 0
    used.append(memory[2] >> 30)
print(first, second, total.value >> 20, used)
"""


def test_mig_devices_have_their_own_memory(folder):
    state = f"{folder}/mig"
    call(TOOL, "run", "--node", "a100-mig", "--state", state, "--", "true")
    for index, expected in ((0, "0 0 40192 [10, 0, 0]"), (2, "0 2 9728 [0, 0, 5]")):
        card = json.loads(call(TOOL, "show", "--state", state, "--output", "json").stdout)["cards"][0]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": card["mig"][index]["uuid"]}
        done = call(TOOL, "run", "--state", state, "--", sys.executable, "-c", USE_MIG, env=environment)
        check(f"MIG device {index}", done.stdout.strip() == expected, done)


def test_injects(folder):
    state = f"{folder}/inject"
    check("made", call(TOOL, "run", "--state", state, "--", "true").returncode == 0)
    inject = lambda *arguments: call(TOOL, "inject", "--state", state, *arguments).returncode
    show = lambda: json.loads(call(TOOL, "show", "--state", state, "--output", "json").stdout)
    check("fault", inject("fault", "nvmlInit_v2", "--result", "DRIVER_NOT_LOADED", "--count", "1") == 0)
    check("fault is shown", show()["faults"][0]["call"] == "nvmlInit_v2")
    one = "import ctypes; n=ctypes.CDLL('libnvidia-ml.so.1'); print(n.nvmlInit_v2(), n.nvmlInit_v2())"
    done = call(TOOL, "run", "--state", state, "--", sys.executable, "-c", one)
    check("fault happens once", done.stdout == "9 0\n", done)
    check("xid", inject("xid", "31") == 0 and inject("ecc", "--uncorrected", "2") == 0 and inject("lose") == 0)
    card = show()["cards"][0]
    check("they are shown", card["xids"] == 2 and card["ecc_uncorrected"] == 2 and card["lost"], card)
    check("return", inject("return") == 0 and not show()["cards"][0]["lost"])
    check("throttle", inject("throttle", "power,thermal") == 0 and inject("temperature", "90") == 0)
    check("hang and clear", inject("hang", "--ms", "5") == 0 and inject("clear") == 0 and not show()["faults"])
    refused("bad result", "--result 'NONSENSE' is not legal", "inject", "--state", state, "fault", "cuInit", "--result", "NONSENSE")
    refused("fault without effect", "needs --result", "inject", "--state", state, "fault", "cuInit")
    refused("bad card", "--card '7' is not legal: a card from 0 to 0", "inject", "--state", state, "xid", "31", "--card", "7")
    refused("bad throttle", "throttle 'x' is not legal", "inject", "--state", state, "throttle", "x")


def test_refuses(folder):
    bad = f"{folder}/bad.yaml"
    pathlib.Path(bad).write_text("cards: [{memory_mib: lots}]\n")
    refused("bad node", "cards[0].memory_mib: 'lots'", "run", "--node", bad, "--", "true")
    refused("unknown preset", "presets are", "run", "--node", "gtx", "--", "true")
    pathlib.Path(f"{folder}/text").write_text("not a node")
    refused("state that is no node", "not a node", "run", "--state", f"{folder}/text", "--", "true")
    refused("state nowhere", "No such file", "run", "--state", f"{folder}/no/such/folder/node", "--", "true")
    refused("no libraries", "driver library", "run", "--libraries", folder, "--", "true")
    refused("no command", "COMMAND is required", "run", status=2)
    refused("no subcommand", "subcommand is required", status=2)
    refused("show nothing", "No such file", "show", "--state", f"{folder}/nothing")
    helped = call(TOOL, "--help")
    check("help", helped.returncode == 0 and "Examples:" in helped.stdout and "a10g" in helped.stdout)


def main():
    for test in (test_passes_through, test_finds_the_driver, test_state_is_shared, test_mig_devices_have_their_own_memory, test_injects, test_refuses):
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
    print(f"{len(FAILED)} failed")
    sys.exit(1 if FAILED else 0)


main()
