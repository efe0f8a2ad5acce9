"""CPU time per decision on one core, compared with noop and noop-h2.

Server and client share the core. Memory store, one connection. Each figure is the median of the ratios of
alternating runs.
"""

from statistics import median

import rules
from lab import ratio

THREE = ["user=u{N}", "path=/p{N}", "ip=10.0.0.{N}"]


def run(lab, results):
    against_noop(lab, results, "16 in flight", rules.one(), noop=0.9, h2=1.5, concurrency=16)
    against_noop(lab, results, "1 in flight", rules.one(), noop=1.0, concurrency=1)
    against_noop(lab, results, "16 in flight, Envoy's headers", rules.one(), noop=0.9, h2=1.5,
                 concurrency=16, envoy_headers=True)
    against_noop(lab, results, "1 in flight, Envoy's headers", rules.one(), noop=1.0,
                 concurrency=1, envoy_headers=True)
    against_noop(lab, results, "3 descriptors with 4 limits each", rules.several(), noop=1.4,
                 concurrency=16, descriptor=THREE)
    against_itself(lab, results, "a million keys / a thousand keys", 1.3,
                   (rules.one(), {"keys": 1000}), (rules.one(), {"keys": 10**6}), fill=10**6)
    against_itself(lab, results, "ten thousand rules / one rule", 1.3,
                   (rules.one(), {"keys": 10**4}), (rules.by_value(10**4), {"keys": 10**4}))
    flooded = "unit: year, requests_per_unit: 1"
    # Runs vary by a few hundredths; the target is equal cost within that.
    against_itself(lab, results, "all denied / all allowed", 1.03,
                   (rules.one(), {"keys": 1000}), (rules.one(flooded), {"keys": 1000}),
                   fill=1000, over_limit=True)


def cpu(report):
    return report["cpu"][0]


def against_noop(lab, results, title, text, noop, h2=None, **load):
    if lab.only not in title:
        return
    load = {"keys": 1000, **lab.duration, **load}
    with lab.weir(text) as weir, lab.noop() as plain, lab.noop(kind="noop-h2") as bare:
        servers = [weir, plain, bare]
        figures = lab.rounds(title, {s.name: lambda s=s: lab.load(s, **load) for s in servers}, cpu)
    costs = ", ".join(f"{name} {median(all):.2f}" for name, all in figures.items())
    results.add(f"{title}: weir / noop", ratio(figures, "weir", "noop"), most=noop,
                note=f"µs: {costs}")
    results.add(f"{title}: weir / noop-h2", ratio(figures, "weir", "noop-h2"), most=h2)


def against_itself(lab, results, title, most, base, other, fill=0, over_limit=False):
    """Compares the cost of `other` with that of `base`, each a rule file and flags of the load."""
    if lab.only not in title:
        return
    with lab.weir(base[0]) as first, lab.weir(other[0]) as second:
        if fill:
            lab.load(second, requests=fill, sequential=True, warmup=0, seconds=600, concurrency=64,
                     keys=fill)

        def run(server, flags):
            report = lab.load(server, concurrency=16, **lab.duration, **flags)
            if server is second and over_limit and report["ok"]:
                raise RuntimeError(f"{report['ok']} calls were admitted over the limit")
            return report

        runs = {"base": lambda: run(first, base[1]), "other": lambda: run(second, other[1])}
        figures = lab.rounds(title, runs, cpu)
    results.add(title, ratio(figures, "other", "base"), most=most,
                note=f"µs: {median(figures['other']):.2f} over {median(figures['base']):.2f}")
