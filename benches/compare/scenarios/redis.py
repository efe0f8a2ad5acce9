"""CPU time that counting in Redis adds to weir, and CPU time and page faults by the decisions in flight, on one core."""

import contextlib
from statistics import median

import rules
from lab import ratio

# The cost of noop on an idle machine of the kind for which the target was set.
NOOP = 5.83

# Decisions in flight, and the most that they may cost as a share of the build of --before.
DEPTHS = {1: 0.93, 16: 0.8, 48: 0.8, 64: 0.8, 128: 1.0}


def run(lab, results):
    added(lab, results)
    depths(lab, results)


def added(lab, results):
    with lab.redis() as redis, lab.noop() as noop, lab.weir(rules.one()) as memory, \
            lab.weir(rules.one(), redis=redis.grpc) as shared:
        load = {"keys": 1000, "concurrency": 16, **lab.duration}
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


def depths(lab, results):
    programs = {"now": None} | ({"before": lab.before} if lab.before else {})
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(lab.redis())
        servers = {
            name: stack.enter_context(lab.weir(rules.one(), redis=redis.grpc, program=program))
            for name, program in programs.items()
        }
        for concurrency, most in DEPTHS.items():
            load = {"keys": 1000, "concurrency": concurrency, "also": [redis], **lab.duration}
            runs = {name: lambda server=server: counted(lab, server, load) for name, server in servers.items()}
            title = f"{concurrency} in flight"
            figures = lab.rounds(title, runs, lambda figure: figure, count=3 if lab.quick else 10)
            costs = {name: [figure[0] for figure in all] for name, all in figures.items()}
            by_redis = {name: median(figure[1] for figure in all) for name, all in figures.items()}
            note = ", ".join(f"{name} {median(all):.2f} + {by_redis[name]:.2f}" for name, all in costs.items())
            if lab.before:
                results.add(f"{title}: now / before", ratio(costs, "now", "before"), most=most, note=f"µs: {note}")
            else:
                results.add(title, median(costs["now"]), "µs", note=f"weir + Redis: {note}")
            faults = {name: median(figure[2] for figure in all) for name, all in figures.items()}
            note = ", ".join(f"{name} {each:.4f}" for name, each in faults.items())
            results.add(f"{title}: page faults per decision", faults["now"], most=0.01, note=note)


def counted(lab, server, load):
    """Returns the CPU time of weir and of Redis, and the page faults of weir, per decision."""
    before = server.page_faults()
    report = lab.load(server, **load)
    # Those of the warm-up count, too.
    return (*report["cpu"], (server.page_faults() - before) / report["calls"])
