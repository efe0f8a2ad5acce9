"""Latency in an open loop at a third of what noop can serve.

Calls are due at a steady rate, and latency counts from then. Nothing is pinned.
"""

from statistics import median

import rules

QUANTILES = {"p50": 0, "p99": 1, "p999": 2}


def run(lab, results):
    with lab.weir(rules.one(), pinned=False) as weir, lab.noop(pinned=False) as noop:
        load = {"keys": 1000, "connections": 2, "concurrency": 64, "seconds": 1, "warmup": 0.3}
        saturated = [lab.load(noop, pinned=False, **load)["calls_per_second"] for _ in range(3)]
        rate = int(median(saturated) / 3)
        lab.say(f"noop serves {median(saturated):.0f} per second; the load is {rate} per second")
        # Enough concurrency for a stall of a tenth of a second.
        open_loop = {"keys": 1000, "connections": 2, "concurrency": 4096, "rate": rate,
                     "seconds": 1.5 if lab.quick else 5, "warmup": 0.3}
        runs = {s.name: lambda s=s: lab.load(s, pinned=False, **open_loop) for s in (weir, noop)}

        def of(report):
            if report["unsent"]:
                raise RuntimeError(f"{report['unsent']} calls were not sent")
            return tuple(report["latency_us"][name] for name in QUANTILES)

        figures = lab.rounds(f"{rate} per second", runs, of)
    for name, i in QUANTILES.items():
        mine, its = (median(figure[i] for figure in figures[who]) for who in ("weir", "noop"))
        results.add(f"{name}: weir / noop", mine / its, most=1.2,
                    note=f"µs: {mine:.0f} over {its:.0f}, {rate} per second")
