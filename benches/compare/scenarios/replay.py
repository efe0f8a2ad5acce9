"""Lines a second of `weir replay`."""

import json
import os
import random
import subprocess
import time
from statistics import median

RULES = """domain: bench
descriptors:
  - key: user
    rate_limit: { unit: second, requests_per_unit: 1, algorithm: gcra, burst: 3 }
"""
KEYS = 100_000
LINE_BYTES = 200


def run(lab, results):
    lines = 1_000_000 if lab.quick else 4_000_000
    rules = lab.rules(RULES)
    for field in ["user", "request.user"]:
        log = rules.parent / "traffic.jsonl"
        write(log, lines, field)
        command = [*lab.prefix(pinned=False), str(lab.programs["weir"]), "replay", str(rules), "--traffic", str(log),
                   "--domain", "bench", "--descriptor", f"user={{{field}}}", "--output", "json"]
        rates, costs = [], []
        for _ in range(lab.pairs):
            before, started = os.times(), time.monotonic()
            output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
            seconds, after = time.monotonic() - started, os.times()
            requests = json.loads(output)["traffic"]["requests"]
            if requests != lines:
                raise RuntimeError(f"{requests} requests of {lines} lines")
            rates.append(lines / seconds)
            costs.append((sum(after[2:4]) - sum(before[2:4])) * 1e6 / lines)
            lab.say(f"{field}: {lines} lines in {seconds:.2f} s, {rates[-1]:,.0f} a second, {costs[-1]:.2f} µs of CPU time each")
        results.add(f"JSON lines of {LINE_BYTES} bytes, field {field}, gcra, {KEYS} keys", median(rates),
                    "lines a second", least=1_000_000, note=f"{median(costs):.2f} µs of CPU time a line")


def write(path, lines, field):
    """Writes an access log: 20 000 lines a second of random users, each of LINE_BYTES with the line break."""
    chance = random.Random(1)
    start = 1_767_225_600
    *outer, name = field.split(".")
    opened, closed = "".join(f'"{key}":{{' for key in outer), "}" * len(outer)
    with open(path, "w") as file:
        for number in range(lines):
            seconds, part = divmod(number, 20_000)
            clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start + seconds)) if part == 0 else clock
            line = (f'{{"time":"{clock}.{part // 20:03}Z","method":"GET","path":"/api/items/{number % 1000:03}",'
                    f'"status":200,{opened}"{name}":"user-{chance.randrange(KEYS):05}"{closed},"duration":'
                    f'{number % 90 + 10},"agent":"Mozilla/5.0","host":"shop.example","id":"')
            file.write(line + "x" * (LINE_BYTES - len(line) - 3) + '"}\n')
