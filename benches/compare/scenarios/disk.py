"""Latency of the store on disk beside that in memory, at 100 000 changed keys a second.

Calls are due at a steady rate, and latency counts from then. Each call has ten descriptors. Nothing is
pinned.
"""

import itertools
from statistics import median

import rules

CALLS_PER_SECOND = 10_000
DESCRIPTORS = [f"key{i}" for i in range(10)]
# Of each descriptor; in order, so that each takes its turn every ten seconds.
KEYS = 100_000

QUANTILES = ("p50", "p99", "p999")


def run(lab, results):
    text = rules.document(*(rules.rule(key) for key in DESCRIPTORS))
    numbers = itertools.count()

    def measure(kind):
        settings = [f"store.kind={kind}"]
        if kind == "disk":
            settings.append(f"store.disk.path={lab.directory}/counters-{next(numbers)}")
        with lab.weir(text, pinned=False, settings=settings) as weir:
            # The table has all keys before the measurement.
            report = lab.load(
                weir, pinned=False, keys=KEYS, sequential=True, rate=CALLS_PER_SECOND, connections=2,
                concurrency=4096, warmup=KEYS / CALLS_PER_SECOND, seconds=5 if lab.quick else 15,
                descriptor=[f"{key}=v{{N}}" for key in DESCRIPTORS])
            if report["unsent"]:
                raise RuntimeError(f"{report['unsent']} calls were not sent")
            if kind == "disk" and weir.metric("weir_disk_sync_age_seconds") > 5:
                raise RuntimeError("changes are not saved")
            return tuple(report["latency_us"][name] for name in QUANTILES)

    runs = {kind: lambda kind=kind: measure(kind) for kind in ("disk", "memory")}
    figures = lab.rounds("100 000 keys a second", runs, lambda figure: figure)
    for i, name in enumerate(QUANTILES):
        disk, memory = (median(figure[i] for figure in figures[kind]) for kind in ("disk", "memory"))
        results.add(f"{name}: disk / memory", disk / memory, most=1.2 if name == "p99" else None,
                    note=f"µs: {disk:.0f} over {memory:.0f}")
