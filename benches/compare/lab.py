"""Starts servers, loads them, and stops them."""

import contextlib
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rules
from servers import Server, free_port, poll, wait_for_port, wait_until_ready


# A value of `pinned`: on all cores except that of pinned runs.
BESIDE = "beside"


class Lab:
    def __init__(self, programs, args):
        self.programs = programs
        self.quick = args.quick
        self.only = args.only
        self.others = args.other
        self.before = args.before
        self.scenario = ""
        self.pairs = 3 if args.quick else 5
        # Of one run that is compared by its CPU time.
        self.duration = {"seconds": 0.7, "warmup": 0.3} if args.quick else {"seconds": 2, "warmup": 0.5}
        # With a single core, all runs are pinned.
        self.processor = args.processor if args.processor in os.sched_getaffinity(0) else 0

    def __enter__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="compare-"))
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory, ignore_errors=True)

    def say(self, text):
        print(f"{time.strftime('%H:%M:%S')} {self.scenario}: {text}", file=sys.stderr, flush=True)

    # Servers.

    def rules(self, text, name="rules"):
        """Creates a directory with one rule file."""
        directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))
        (directory / "bench.yaml").write_text(text)
        return directory

    @contextlib.contextmanager
    def weir(self, rules, pinned=True, settings=(), redis=None, ready=True, program=None):
        """Runs weir, or another build of it, with the rules of a directory, or with the text of a rule file."""
        if isinstance(rules, str):
            rules = self.rules(rules)
        grpc, http, debug = (f"127.0.0.1:{free_port()}" for _ in range(3))
        command = [program or self.programs["weir"], "serve", "--rules", rules, "--grpc-address", grpc,
                   "--http-address", http, "--debug-address", debug, "--log-level", "error"]
        store = ["store.kind=redis", f"store.redis.url={redis}"] if redis else ["store.kind=memory"]
        for setting in [*store, *settings]:
            command += ["--set", setting]
        with self.process("weir", command, pinned) as process:
            server = Server("weir", process, grpc, http, debug)
            if ready:
                wait_until_ready(server)
            yield server

    @contextlib.contextmanager
    def noop(self, pinned=True, kind="noop"):
        """Runs a server that always answers OK: `noop` or `noop-h2`."""
        address = f"127.0.0.1:{free_port()}"
        with self.process(kind, [self.programs[kind], "--listen", address], pinned) as process:
            wait_for_port(process, address)
            yield Server(kind, process, address)

    @contextlib.contextmanager
    def other(self, name, command, pinned=True, redis=None):
        """Runs the server of a command with placeholders, with the one rule of `rules.one`."""
        root = Path(tempfile.mkdtemp(prefix="other-", dir=self.directory))
        (root / "rules").mkdir()
        (root / "rules" / "bench.yaml").write_text(rules.one())
        port = free_port()
        placeholders = {"port": port, "port2": free_port(), "port3": free_port(), "root": root,
                        "rules": root / "rules", "redis": redis.grpc if redis else ""}
        words = shlex.split(command)
        for placeholder, value in placeholders.items():
            words = [word.replace("{" + placeholder + "}", str(value)) for word in words]
        with self.process(name, words, pinned) as process:
            server = Server(name, process, f"127.0.0.1:{port}")
            wait_for_port(process, server.grpc)
            poll(process, "answering", lambda: self.answers(server))
            yield server

    def answers(self, server):
        """Returns whether a server answers a request without an error."""
        time.sleep(0.1)
        command = [self.programs["load"], "--addr", server.grpc, "--requests", "1", "--warmup", "0",
                   "--concurrency", "1", "--keys", "1000"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return done.returncode == 0

    @contextlib.contextmanager
    def redis(self, pinned=True):
        port = free_port()
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                   "--appendonly", "no", "--dir", self.directory]
        with self.process("redis", command, pinned) as process:
            wait_for_port(process, f"127.0.0.1:{port}")
            yield Server("redis", process, f"127.0.0.1:{port}")

    @contextlib.contextmanager
    def delayed(self, server, delay):
        """Runs a proxy that passes on to a server, each way this many seconds later. Yields its address."""
        port, to = free_port(), server.grpc.rsplit(":", 1)[1]
        command = [sys.executable, Path(__file__).parent / "delay.py", port, to, delay]
        with self.process("delay", command) as process:
            wait_for_port(process, f"127.0.0.1:{port}")
            yield f"127.0.0.1:{port}"

    @contextlib.contextmanager
    def process(self, name, command, pinned=False, nice=0):
        """Runs a process that ends with the context. Prints its output if it fails."""
        log = self.directory / f"{name}-{time.monotonic_ns()}.log"
        # Variables such as REDIS_URL must not change the result.
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        with log.open("w") as output:
            process = subprocess.Popen(self.prefix(pinned, nice) + [str(part) for part in command],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if
                                       name == "hostile" else output, stderr=output, env=kept)
        try:
            yield process
            if process.poll() not in (None, 0):
                raise RuntimeError(f"{name} ended with {process.returncode}")
        except Exception:
            if output := log.read_text()[-2000:]:
                print(f"last output of {name}:\n{output}", file=sys.stderr)
            raise
        finally:
            process.kill()
            process.wait()

    def prefix(self, pinned, nice=0):
        all = os.sched_getaffinity(0)
        on = (all - {self.processor} or all) if pinned == BESIDE else {self.processor}
        prefix = ["taskset", "-c", ",".join(map(str, on))] if pinned else []
        return prefix + (["nice", "-n", str(nice)] if nice else [])

    # Load.

    def load(self, server, pinned=True, also=(), **flags):
        """Runs the load generator against a server. Returns its report as a dictionary."""
        command = [self.programs["load"], "--addr", server.grpc, "--json"]
        if server.ca:
            command += ["--tls-ca", server.ca]
        for one in (server, *also):
            command += ["--server-pid", f"{one.name}={one.pid}"]
        for name, value in flags.items():
            name = "--" + name.replace("_", "-")
            if value is True:
                command.append(name)
            elif value is not False:
                for each in value if isinstance(value, (list, tuple)) else [value]:
                    command += [name, each]
        command = self.prefix(pinned) + [str(part) for part in command]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            output = f"{done.stdout}{done.stderr}".strip()
            raise RuntimeError(f"the load on {server.name} failed: {output}\n{' '.join(command)}")
        report = json.loads(done.stdout)
        report["cpu"] = [one["cpu_us_per_call"] for one in report["servers"]]
        return report

    def rounds(self, title, runs, of, count=None):
        """Alternates `runs` (functions by name) several times. Returns `of` each result by name."""
        figures = {name: [] for name in runs}
        count = count or self.pairs
        for i in range(count):
            for name, run in runs.items():
                figures[name].append(of(run()))
            last = ", ".join(f"{name} {shown(all[-1])}" for name, all in figures.items())
            self.say(f"{title}, {i + 1} of {count}: {last}")
        return figures


def shown(value):
    return " ".join(f"{v:.2f}" for v in value) if isinstance(value, tuple) else f"{value:.2f}"


def ratio(figures, one, other):
    """Returns the median of the ratios of neighboring runs."""
    return statistics.median(a / b for a, b in zip(figures[one], figures[other]))
