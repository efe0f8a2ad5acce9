"""CPU time that counting in Redis adds to weir, all on one core."""

from statistics import median

import rules

# The cost of noop on an idle machine of the kind for which the target was set.
NOOP = 5.83


def run(lab, results):
    with lab.redis() as redis, lab.noop() as noop, lab.weir(rules.one()) as memory, \
            lab.weir(rules.one(), redis=redis.grpc) as shared:
        duration = {"seconds": 0.7, "warmup": 0.3} if lab.quick else {"seconds": 2, "warmup": 0.5}
        load = {"keys": 1000, "concurrency": 16, **duration}
        runs = {
            "noop": lambda: lab.load(noop, **load),
            "memory": lambda: lab.load(memory, **load),
            "redis": lambda: lab.load(shared, also=[redis], **load),
        }
        figures = lab.rounds("16 in flight", runs, lambda report: tuple(report["cpu"]))
    rounds = zip(figures["redis"], figures["memory"], figures["noop"])
    added = median((mine[0] - own[0]) * NOOP / its[0] for mine, own, its in rounds)
    costs = ", ".join(f"{name} {median(f[0] for f in all):.2f}" for name, all in figures.items())
    results.add(f"added to weir, scaled to noop = {NOOP} µs", added, "µs", most=2.0, note=f"µs: {costs}")
    results.add("Redis itself", median(f[1] for f in figures["redis"]), "µs")
