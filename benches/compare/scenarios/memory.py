"""Resident memory, idle and per key, and stalls while the table grows."""

import subprocess
import time
from statistics import median

import rules

MB = 1e6


def run(lab, results):
    idle(lab, results)
    for algorithm in ("fixed_window", "gcra"):
        by_key(lab, results, algorithm)
    growing(lab, results)
    store_alone(lab, results)


def idle(lab, results):
    resident = []
    for _ in range(3):
        with lab.weir(rules.one(), pinned=False) as weir:
            time.sleep(0.5)
            resident.append(weir.resident() / MB)
    results.add("idle", median(resident), "MB", most=15)


def fill(lab, server, keys, **flags):
    flags = {"concurrency": 64, "connections": 2, "seconds": 600, **flags}
    return lab.load(server, pinned=False, keys=keys, requests=keys, sequential=True, warmup=0,
                    **flags)


def by_key(lab, results, algorithm):
    keys = 10**6
    # A low limit, so that gcra keeps a hit for hours.
    limit = f"algorithm: {algorithm}, unit: day, requests_per_unit: 10"
    with lab.weir(rules.one(limit), pinned=False) as weir:
        time.sleep(0.5)
        before = weir.resident()
        fill(lab, weir, keys)
        each = (weir.resident() - before) / keys
    lab.say(f"{algorithm}: {each:.1f} bytes per key")
    results.add(f"{algorithm}: per key of a million", each, "bytes", most=64)


def growing(lab, results):
    """Latency over gRPC while every call adds a key, and while none does."""
    keys, rate = (10**6, 50_000) if lab.quick else (10**7, 80_000)
    seconds = keys / rate
    flags = {"rate": rate, "concurrency": 8192}
    with lab.weir(rules.one(), pinned=False, settings=[f"store.memory.max_keys={keys}"]) as weir:
        lab.say(f"{seconds:.0f} s of growth to {keys} keys, and the same time without new ones")
        grown = fill(lab, weir, keys, seconds=seconds, **flags)
        again = fill(lab, weir, keys, seconds=seconds, **flags)
        resident = weir.resident()
    for name in ("p999", "max"):
        results.add(f"growing to {keys:.0e} keys: {name}", grown["latency_us"][name] / 1e3, "ms",
                    note=f"{again['latency_us'][name] / 1e3:.2f} ms without new keys")
    results.add(f"resident with {keys:.0e} keys", resident / MB, "MB")


def store_alone(lab, results):
    """Runs the store without gRPC, which distinguishes its pauses from those of the machine."""
    keys = 10**6 if lab.quick else 10**7
    command = [str(lab.programs["memory_per_key"]), str(keys)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    for line in output.splitlines():
        lab.say(line)
    steps = [line for line in output.splitlines() if " keys: " in line and "longest [" in line]
    longest = max(micros(line.split("longest [")[1].split(",")[0]) for line in steps)
    results.add(f"store alone, to {keys:.0e} keys: longest", longest / 1e3, "ms",
                note="printed above: each step, and the pauses of the idle machine")


def micros(text):
    """Parses a duration such as `1.2ms` into microseconds."""
    for unit, factor in (("ns", 1e-3), ("µs", 1), ("ms", 1e3), ("s", 1e6)):
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    raise ValueError(text)
