"""Runs a program on a simulated node, bare and behind the fence, and compares what it answered.

A case is a function in cases/ with the decorator @case. It is called twice, each time inside `tessera-sim run` on a
node of its own (unless it says inside_node=False and starts nodes itself) and with a state directory of its own: once with mode "bare", once with mode "fenced". It starts
programs by Inside.run or Inside.start, which put `tessera run --mem ... --` before them in the second mode, and returns

    answers   what must be the same in both modes
    shown     sentences for docs/compatibility.md (from the fenced mode)
    problems  sentences; any makes the case fail

Every process is started here and ended by its pid; every wait has an end.
"""
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CASES = {}


@dataclasses.dataclass
class Case:
    name: str
    program: str        # as in docs/compatibility.md
    version: object     # str, or (environment of the cache, distribution)
    tier: str           # test | frameworks | rare
    node: str           # preset of tessera-sim, or a file beside this one
    function: object
    timeout: int
    inside_node: bool   # False: the function starts the node itself


def case(name, program, version, tier="test", node="a10g", timeout=240, inside_node=True):
    def register(function):
        assert name not in CASES, name
        CASES[name] = Case(name, program, version, tier, node, function, timeout, inside_node)
        return function
    return register


@dataclasses.dataclass
class Config:
    tessera: str
    tessera_sim: str
    samples: str        # folder of the nvcc samples
    cache: str
    results: str        # folder for one JSON file per case

    @staticmethod
    def load(path):
        known = {field.name for field in dataclasses.fields(Config)}
        return Config(**{k: v for k, v in json.loads(pathlib.Path(path).read_text()).items() if k in known})

    def python(self, environment="programs"):
        return f"{self.cache}/{environment}/bin/python"

    def node_file(self, node):
        file = HERE / "nodes" / f"{node}.yaml"
        return str(file) if file.exists() else node

    def version(self, version):
        if isinstance(version, str):
            return version
        environment, distribution = version
        command = [self.python(environment), "-c",
                   f"import importlib.metadata as m; print(m.version({distribution!r}))"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip() or "not installed"


class Failed(Exception):
    pass


@dataclasses.dataclass
class Done:
    argv: list
    rc: int
    out: str
    err: str

    def json(self):
        """The last line of stdout that is a JSON object."""
        for line in reversed(self.out.splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        raise Failed(f"no JSON from {self.describe()}")

    def describe(self):
        return (f"{' '.join(map(str, self.argv))}: exit {self.rc}\n--- stdout\n{self.out[-2000:]}"
                f"\n--- stderr\n{self.err[-2000:]}")


class Running:
    """A program that was started and will be ended, whatever happens."""

    def __init__(self, argv, environment):
        self.argv = argv
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=environment, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    @property
    def pid(self):
        return self.process.pid

    def line(self, timeout=60):
        """The next line of stdout."""
        import select
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.end()
            raise Failed(f"no line within {timeout} s from {' '.join(self.argv)}: {self.process.stderr.read()[-2000:]}")
        return line.rstrip("\n")

    def wait(self, timeout=120):
        out, err = self.process.communicate(timeout=timeout)
        return Done(self.argv, self.process.returncode, out, err)

    def end(self):
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass


class Inside:
    """What a case sees: a mode, a node, and how to start programs there."""

    def __init__(self, config, mode):
        self.config = config
        self.mode = mode
        self.fenced = mode == "fenced"
        self.problems = []
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="tessera-case-"))

    def command(self, argv, mem=8000, name=None, cards=1, flags=()):
        """`cards` > 1: a slice of `mem` MiB on each of so many cards."""
        argv = [str(a) for a in argv]
        if not self.fenced or mem is None:
            return argv
        fence = [self.config.tessera, "run", "--mem", str(mem)]
        if name:
            fence += ["--name", name]
        if cards > 1:
            fence += ["--cards", str(cards)]
        return fence + list(flags) + ["--"] + argv

    def environment(self, extra):
        environment = dict(os.environ)
        for key, value in (extra or {}).items():
            environment[key] = str(value)
        return environment

    def start(self, argv, env=None, **fence):
        return Running(self.command(argv, **fence), self.environment(env))

    def run(self, argv, env=None, timeout=120, expect=0, **fence):
        with self.start(argv, env=env, **fence) as running:
            try:
                done = running.wait(timeout)
            except subprocess.TimeoutExpired:
                running.end()
                raise Failed(f"no end within {timeout} s: {' '.join(running.argv)}") from None
        if expect is not None and done.rc != expect:
            raise Failed(f"expected exit {expect}: {done.describe()}")
        return done

    def tessera(self, *argv, expect=0):
        """A subcommand of tessera that is not behind the fence."""
        return self.run([self.config.tessera, *argv], mem=None, expect=expect)

    def expect(self, condition, sentence):
        if not condition:
            self.problems.append(f"{self.mode}: {sentence}")

    def wait_until(self, condition, timeout=20):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        return condition()


def run_inside(config, name, mode, out):
    """The inner half: this process lives on the simulated node."""
    chosen = CASES[name]
    inside = Inside(config, mode)
    try:
        result = chosen.function(inside) or {}
        result["problems"] = inside.problems + result.get("problems", [])
    except Failed as failed:
        result = {"answers": None, "shown": [], "problems": inside.problems + [f"{mode}: {failed}"]}
    except Exception as error:  # a broken case is a failed case, with its place
        import traceback
        result = {"answers": None, "shown": [], "problems": inside.problems + [f"{mode}: {traceback.format_exc()}"]}
    pathlib.Path(out).write_text(json.dumps(result))


def run_case(config, config_path, name):
    """The outer half: both modes, each on a fresh node; writes the result and says what went wrong."""
    chosen = CASES[name]
    results = {}
    for mode in ("bare", "fenced"):
        # A program of the case that is just ending may still write there.
        with tempfile.TemporaryDirectory(prefix="tessera-node-", ignore_cleanup_errors=True) as folder:
            out = f"{folder}/result.json"
            state = f"{folder}/state"
            inner = [sys.executable, str(HERE / "run.py"), "--config", config_path, "--inside", mode, "--out", out, name]
            argv = inner
            if chosen.inside_node:
                argv = [config.tessera_sim, "run", "--node", config.node_file(chosen.node), "--", *inner]
            environment = dict(os.environ, TESSERA_STATE=state, TMPDIR=folder, PYTHONDONTWRITEBYTECODE="1")
            for leftover in ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD"):
                environment.pop(leftover, None)
            with Running(argv, environment) as running:
                try:
                    done = running.wait(chosen.timeout)
                    said = done.out + done.err
                except subprocess.TimeoutExpired:
                    running.end()
                    said = f"no end within {chosen.timeout} s"
            if os.path.exists(out):
                results[mode] = json.loads(pathlib.Path(out).read_text())
            else:
                results[mode] = {"answers": None, "shown": [], "problems": [f"{mode}: {said[-3000:]}"]}
    bare, fenced = results["bare"], results["fenced"]
    problems = bare["problems"] + fenced["problems"]
    if not problems and bare["answers"] != fenced["answers"]:
        for key in sorted(set(bare["answers"]) | set(fenced["answers"])):
            one, other = bare["answers"].get(key), fenced["answers"].get(key)
            if one != other:
                problems.append(f"answers differ in '{key}': bare {one!r}, fenced {other!r}")
    record = {
        "case": name, "program": chosen.program, "version": config.version(chosen.version), "tier": chosen.tier,
        "shown": fenced.get("shown", []), "bare": not bare["problems"], "fenced": not fenced["problems"],
        "same": not problems,
    }
    os.makedirs(config.results, exist_ok=True)
    pathlib.Path(config.results, f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False))
    for sentence in fenced.get("shown", []):
        print(f"  {sentence}")
    for problem in problems:
        print(f"PROBLEM {problem}")
    print(f"{name}: {'ok' if not problems else 'FAILED'}")
    return not problems
