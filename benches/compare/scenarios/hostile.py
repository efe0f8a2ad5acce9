"""Latency of a well-behaved client and memory of weir while other clients are hostile.

weir has a core of its own and all clients share the others, so that weir's fairness is measured and not
that of the kernel's scheduler. Hostile clients have the lowest priority.
"""

import contextlib
import json
import threading

import rules
from lab import BESIDE

MB = 1e6
# By name: the arguments of `hostile`, or None for a load of new keys, and the target for the resident
# memory in MB. 10 000 connections may hold 35 KB each, a hundred slow readers 1 MB each, and six
# million keys 64 bytes each, in a table that may just have doubled.
WAYS = {
    "10 000 idle connections": (["idle"], 350),
    "slow readers": (["slow"], 130),
    "giant headers": (["headers"], 60),
    "rapid resets": (["resets"], 60),
    "100 000 new keys per second": (None, 800),
}
GOOD = {"keys": 1000, "connections": 2, "concurrency": 1024, "rate": 2000, "warmup": 0.5}


def run(lab, results):
    for title, (arguments, most) in WAYS.items():
        if lab.only in title:
            one(lab, results, title, arguments, most)


def one(lab, results, title, arguments, most):
    seconds = 6 if lab.quick else 60
    with lab.weir(rules.one()) as weir:
        quiet = lab.load(weir, pinned=BESIDE, seconds=seconds / 3, **GOOD)
        idle = weir.resident()
        with watching(weir) as peak, attack(lab, weir, arguments, seconds + 4) as said:
            # Until the hostile clients have connected.
            threading.Event().wait(2)
            noisy = lab.load(weir, pinned=BESIDE, seconds=seconds, **GOOD)
        left = weir.resident()
    before, during = (report["latency_us"]["p99"] for report in (quiet, noisy))
    lab.say(f"{title}: p99 from {before:.0f} to {during:.0f} µs, {said[0]}")
    results.add(f"{title}: p99 / p99 without them", during / before, most=3.0,
                note=f"µs: {during:.0f} over {before:.0f}")
    results.add(f"{title}: peak resident", max(peak) / MB, "MB", most=most,
                note=f"{idle / MB:.0f} before, {left / MB:.0f} after; {said[0]}")


@contextlib.contextmanager
def attack(lab, weir, arguments, seconds):
    """Runs hostile clients. Yields a list that has their report once they have ended."""
    command = [lab.programs["hostile"], "--addr", weir.grpc, "--seconds", str(seconds)]
    if arguments is None:
        command = [lab.programs["load"], "--addr", weir.grpc, "--seconds", str(seconds), "--json",
                   "--rate", "100000", "--keys", "100000000", "--sequential", "--connections", "2",
                   "--concurrency", "1024"]
    said = []
    with lab.process("hostile", [*command, *(arguments or ())], BESIDE, nice=19) as process:
        yield said
        report = json.loads(process.communicate()[0])
        said.append(f"{report['calls']} calls" if arguments is None
                    else ", ".join(f"{key} {value:.0f}" for key, value in report.items()))


@contextlib.contextmanager
def watching(server):
    """Collects the resident memory of a server four times per second."""
    seen, stop = [server.resident()], threading.Event()

    def watch():
        while not stop.wait(0.25):
            seen.append(server.resident())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
