"""Commands of the Redis protocol beside INCR of redis-server, by redis-benchmark with pipelines of 16.

Each server has a core of its own in turn, and redis-benchmark the others.
"""

import contextlib
import csv
import subprocess
from statistics import median

import rules
from lab import BESIDE, ratio
from servers import free_port, wait_for_port

PIPELINE = 16
CLIENTS = 50
# Random keys are below this number.
KEYS = 100_000

COMMANDS = {
    "WEIR.CHECK": ["WEIR.CHECK", "bench", "1", "user", "__rand_int__"],
    "CL.THROTTLE": ["CL.THROTTLE", "__rand_int__", "100", "10", "60"],
}


def run(lab, results):
    requests = 100_000 if lab.quick else 500_000
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(lab.redis())
        address = f"127.0.0.1:{free_port()}"
        weir = stack.enter_context(lab.weir(rules.one(), settings=[f"resp.address={address}"]))
        wait_for_port(weir.process, address)
        runs = {"INCR": lambda: benchmark(lab, redis.grpc, requests, ["INCR", "key:__rand_int__"])}
        for name, command in COMMANDS.items():
            runs[name] = lambda command=command: benchmark(lab, address, requests, command)
        figures = lab.rounds(f"thousands a second, pipelines of {PIPELINE}", runs, lambda rate: rate / 1000)
        answered = weir.metric("weir_resp_commands_total")
    if answered < requests * len(COMMANDS) * lab.pairs:
        raise RuntimeError(f"weir answered only {answered:.0f} commands")
    rates = ", ".join(f"{name} {median(of):.0f}" for name, of in figures.items())
    for name in COMMANDS:
        results.add(f"{name} / INCR of redis-server", ratio(figures, name, "INCR"), least=0.5,
                    note=f"thousands a second: {rates}")


def benchmark(lab, address, requests, words):
    """Sends a command many times. Returns how many a second were answered. It fails at the first error."""
    host, port = address.rsplit(":", 1)
    command = ["redis-benchmark", "-h", host, "-p", port, "-P", PIPELINE, "-c", CLIENTS, "-n", requests,
               "-r", KEYS, "--csv", *words]
    command = lab.prefix(BESIDE) + [str(part) for part in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode != 0 or len(lines) != 2:
        raise RuntimeError(f"redis-benchmark failed: {done.stdout}{done.stderr}".strip())
    header, row = csv.reader(lines)
    return float(row[header.index("rps")])
