"""Programs that look at the card through NVML, while another tenant and this tenant hold memory on it."""
import contextlib
import json
import re
import shlex
import subprocess

from harness import Failed, HERE, case

LIMIT, OTHER = 7000, 5000
CARD = 23028  # MiB of an A10G


@contextlib.contextmanager
def tenants(t):
    """Two tenants that hold what they can get; yields the pid of each. Bare, they share the card without walls."""
    files = []
    with contextlib.ExitStack() as stack:
        pids = []
        for name, mem in (("mine", LIMIT), ("other", OTHER)):
            stay = t.scratch / f"stay-{name}"
            stay.touch()
            files.append(stay)
            # Bare there is no limit: 2 GiB pieces and a short hold would starve the second; so each takes 1 GiB once.
            program = [t.config.python(), HERE / "checks" / "hold_check.py", "1024", stay]
            running = stack.enter_context(t.start(program, mem=mem, name=name))
            pids.append(int(re.fullmatch(r"holding (\d+)", running.line()).group(1)))
        try:
            yield pids
        finally:
            for file in files:
                file.unlink(missing_ok=True)


def nvml(t, *argv):
    """Runs a tool in a slice of LIMIT: as that tenant would."""
    return t.run(argv, mem=LIMIT, name=None)


@case("nvidia-ml-py", "nvidia-ml-py", ("programs", "nvidia-ml-py"))
def nvidia_ml_py(t):
    with tenants(t) as (mine, other):
        done = nvml(t, t.config.python(), HERE / "checks" / "nvml_check.py").json()
    saw = done["saw"]
    t.expect(saw["cards"] == 1, f"{saw['cards']} cards")
    if t.fenced:
        t.expect(saw["total_mib"] == saw["total_v2_mib"] == LIMIT, f"totals {saw['total_mib']}, {saw['total_v2_mib']} MiB")
        t.expect(saw["pids"] == [], f"sees processes {saw['pids']}; {mine} and {other} are other tenants")
        t.expect(saw["used_mib"] < 700, f"{saw['used_mib']} MiB used in an empty slice")
    else:
        t.expect(sorted(saw["pids"]) == sorted([mine, other]), f"sees {saw['pids']}, not {mine} and {other}")
        t.expect(saw["used_mib"] >= 2048, f"{saw['used_mib']} MiB used")
    return {"answers": done["answers"],
            "shown": [f"one card of {LIMIT} MiB in memory v1 and v2; no process of another tenant"]}


@case("nvml-own-process", "nvidia-ml-py (process list)", ("programs", "nvidia-ml-py"))
def own_process(t):
    """A tenant that uses the card finds itself, and only itself, in NVML's list."""
    stay = t.scratch / "stay"
    stay.touch()
    with t.start([t.config.python(), HERE / "checks" / "hold_check.py", "512", stay], mem=OTHER, name="other") as other:
        other.line()
        done = t.run([t.config.python(), HERE / "checks" / "hold_check.py", "1024", "--nvml"], mem=LIMIT).json()
        stay.unlink()
    own = [p for p in done["saw"]["processes"] if p["pid"] == done["saw"]["pid"]]
    t.expect(len(own) == 1, f"pid {done['saw']['pid']} not in {done['saw']['processes']}")
    if own:
        t.expect(1024 <= own[0]["mib"] <= 1024 + 700, f"its memory is shown as {own[0]['mib']} MiB")
    if t.fenced:
        t.expect(len(done["saw"]["processes"]) == 1, f"sees {done['saw']['processes']}")
    return {"answers": {"finds itself": len(own) == 1}, "shown": ["a process finds itself, by its own pid, and nobody else"]}


@case("gpustat", "gpustat", ("programs", "gpustat"))
def gpustat(t):
    with tenants(t) as (mine, other):
        done = nvml(t, t.config.python(), "-m", "gpustat", "--json")
    shown = json.loads(done.out)
    card = shown["gpus"][0]
    t.expect(len(shown["gpus"]) == 1, f"{len(shown['gpus'])} cards")
    total = LIMIT if t.fenced else CARD
    t.expect(card["memory.total"] == total, f"total {card['memory.total']} MiB, expected {total}")
    pids = [p["pid"] for p in card["processes"] or []]
    t.expect(pids == [] if t.fenced else sorted(pids) == sorted([mine, other]), f"processes {pids}")
    return {"answers": {"name": card["name"], "uuid": card["uuid"]}, "shown": [f"one card of {LIMIT} MiB"]}


def nvitop_total(text):
    match = re.search(r"[0-9.]+(?:B|KiB|MiB|GiB) */ *([0-9.]+(?:MiB|GiB))", text)
    if not match:
        raise Failed(f"no memory figure in nvitop's output:\n{text[:4000]}")
    return match.group(1)


def nvitop_expected(t):
    # nvitop shows MiB below 10,000 MiB and GiB with two digits above.
    return f"{LIMIT}MiB" if t.fenced else f"{CARD / 1024:.2f}GiB"


@case("nvitop", "nvitop -1", ("programs", "nvitop"))
def nvitop(t):
    with tenants(t) as (mine, other):
        done = nvml(t, t.config.python(), "-m", "nvitop", "-1", "--ascii", "--no-unicode")
    total = nvitop_total(done.out)
    t.expect(total == nvitop_expected(t), f"total {total}, expected {nvitop_expected(t)}")
    for pid in (mine, other):
        t.expect((str(pid) in done.out) != t.fenced, f"process {pid}: {done.out[-1500:]}")
    return {"answers": {"header": "NVITOP" in done.out}, "shown": [f"total {LIMIT} MiB; no process of another tenant"]}


@case("nvitop-interactive", "nvitop (interactive, in a terminal)", ("programs", "nvitop"), inside_node=False)
def nvitop_interactive(t):
    """In tmux at 120 x 40: starts, draws, ends on `q`; the terminal passes through the simulator and `tessera run`."""
    socket = str(t.scratch / "tmux")

    def tmux(*argv, check=True):
        done = subprocess.run(["tmux", "-S", socket, *argv], capture_output=True, text=True, timeout=20)
        if check and done.returncode != 0:
            raise Failed(f"tmux {' '.join(argv)}: {done.stderr}")
        return done.stdout

    program = ["timeout", "--foreground", "60", t.config.python(), "-m", "nvitop", "--ascii", "--monitor", "full"]
    command = [t.config.tessera_sim, "run", "--node", "a10g", "--", *t.command(program, mem=LIMIT)]
    ended = t.scratch / "ended"
    script = t.scratch / "session.sh"
    script.write_text("#!/bin/sh\n" + shlex.join(command) + f"\necho $? > {shlex.quote(str(ended))}\nsleep 20\n")
    tmux("-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", "-s", "watch", f"sh {shlex.quote(str(script))}")
    try:
        def drawn():
            text = tmux("capture-pane", "-p", "-t", "watch", check=False)
            return text if re.search(r"B */ *[0-9.]+[MG]iB", text) or ended.exists() else ""

        total = nvitop_total(t.wait_until(drawn, timeout=60))
        tmux("send-keys", "-t", "watch", "q")
        code = t.wait_until(lambda: ended.exists() and ended.read_text().strip(), timeout=20)
    finally:
        tmux("kill-server", check=False)
    t.expect(total == nvitop_expected(t), f"total {total}, expected {nvitop_expected(t)}")
    t.expect(code == "0", f"after `q` it ended with {code!r}")
    return {"answers": {"ended": code}, "shown": [f"draws the slice of {LIMIT} MiB, takes keys, ends on `q` with 0"]}
