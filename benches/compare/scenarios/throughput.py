"""Decisions per second on all cores, by the number of connections.

Nothing is pinned; so what else runs on the machine shows.
"""

from statistics import median

import rules
from lab import ratio

# Requests in flight on each connection, by the number of connections.
DEPTHS = {1: 64, 2: 64, 8: 32, 64: 8}


def run(lab, results):
    for connections, depth in DEPTHS.items():
        with lab.weir(rules.one(), pinned=False) as weir, lab.noop(pinned=False) as noop:
            measure(lab, results, connections, depth, weir, noop)


def measure(lab, results, connections, depth, weir, noop):
    title = f"{connections} x {depth} in flight"
    duration = {"seconds": 1, "warmup": 0.3} if lab.quick else {"seconds": 3, "warmup": 0.5}
    load = {"keys": 1000, "connections": connections, "concurrency": depth, **duration}
    runs = {s.name: lambda s=s: lab.load(s, pinned=False, **load) for s in (weir, noop)}

    def of(report):
        foreign = report["foreign_cores"]
        return report["calls_per_second"] / 1e3, min(report["cores_busy"]), foreign, report["cpu"][0]

    figures = lab.rounds(title, runs, of)
    rates = {name: [figure[0] for figure in all] for name, all in figures.items()}
    each = ", ".join(f"{name} {median(all):.0f}" for name, all in rates.items())
    foreign = median(figure[2] for figure in figures["weir"])
    costs = ", ".join(f"{name} {median(f[3] for f in all):.2f}" for name, all in figures.items())
    results.add(f"{title}: weir / noop", ratio(rates, "weir", "noop"), least=1.0,
                note=f"thousands per second: {each}; µs: {costs}")
    busy = median(figure[1] for figure in figures["weir"])
    results.add(f"{title}: the less busy core", 100 * busy, "%",
                least=80 if connections == 2 else None,
                note=f"other programs used {foreign:.2f} cores")
