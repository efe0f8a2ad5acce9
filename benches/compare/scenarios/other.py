"""Cost, throughput and latency of the servers given with --other, beside weir and noop.

Runs alternate. A server whose command names {redis} is compared with weir on a Redis of its own, and the cost
of Redis is reported too. All servers enforce one rule of the domain `bench`: the key `user`, 4 000 000 000
requests per day.
"""

import contextlib
from statistics import median

import rules
from lab import ratio


# The share of calls that may fail.
MAX_ERRORS = 0.1


def run(lab, results):
    for name, command in lab.others.items():
        for concurrency in (1, 16, 64):
            cost(lab, results, name, command, concurrency)
        throughput(lab, results, name, command)
        latency(lab, results, name, command)


@contextlib.contextmanager
def servers(lab, name, command, pinned):
    """Runs weir, the other server and noop. Yields each with the servers that it uses, by name."""
    with contextlib.ExitStack() as stack:
        def redis():
            return stack.enter_context(lab.redis(pinned)) if "{redis}" in command else None

        mine, its = redis(), redis()
        weir = stack.enter_context(lab.weir(rules.one(), pinned, redis=mine and mine.grpc))
        other = stack.enter_context(lab.other(name, command, pinned, redis=its))
        noop = stack.enter_context(lab.noop(pinned))
        yield {"weir": (weir, mine), name: (other, its), "noop": (noop, None)}


def cost(lab, results, name, command, concurrency):
    title = f"{concurrency} in flight, one core"

    def run(server, redis):
        also = [redis] if redis else []
        return load(lab, server, also=also, keys=1000, concurrency=concurrency, **lab.duration)

    with servers(lab, name, command, True) as all:
        runs = {who: lambda pair=pair: run(*pair) for who, pair in all.items()}
        figures = lab.rounds(title, runs, lambda report: tuple(report["cpu"]))
    totals = {who: [sum(figure) for figure in of] for who, of in figures.items()}
    costs = ", ".join(f"{who} {per_server(of)}" for who, of in figures.items())
    results.add(f"{title}: weir / {name}", ratio(totals, "weir", name), note=f"µs: {costs}")


def load(lab, server, **flags):
    """Runs a load. Some calls may fail: servers on Redis fail those that Redis answers late."""
    report = lab.load(server, allow_errors=True, **flags)
    if errors := report["errors"]:
        lab.say(f"{errors} of {report['calls']} calls to {server.name} failed")
    if report["errors"] > MAX_ERRORS * report["calls"]:
        raise RuntimeError(f"{server.name} failed more than {MAX_ERRORS:.0%} of the calls: its "
                           "figures would mean nothing")
    return report


def per_server(figures):
    """Formats the median cost of a server and, after a plus sign, that of its Redis."""
    return " + ".join(f"{median(each):.2f}" for each in zip(*figures))


def throughput(lab, results, name, command):
    duration = {"seconds": 1, "warmup": 0.3} if lab.quick else {"seconds": 3, "warmup": 0.5}
    flags = {"keys": 1000, "connections": 2, "concurrency": 64, "pinned": False, **duration}
    title = "2 x 64 in flight, all cores"
    with servers(lab, name, command, False) as all:
        runs = {who: lambda s=pair[0]: load(lab, s, **flags) for who, pair in all.items()}
        rates = lab.rounds(title, runs, lambda report: report["calls_per_second"] / 1e3)
    each = ", ".join(f"{who} {median(of):.0f}" for who, of in rates.items())
    results.add(f"{title}: weir / {name}", ratio(rates, "weir", name),
                note=f"thousands per second: {each}")


def latency(lab, results, name, command):
    """Measures p99 in an open loop at a third of what the slowest of the servers can serve."""
    flags = {"keys": 1000, "connections": 2, "warmup": 0.3, "pinned": False}
    with servers(lab, name, command, False) as all:
        rates = [load(lab, pair[0], concurrency=64, seconds=1, **flags)["calls_per_second"]
                 for pair in all.values()]
        flags |= {"concurrency": 4096, "rate": int(min(rates) / 3),
                  "seconds": 1.5 if lab.quick else 5}
        runs = {who: lambda s=pair[0]: load(lab, s, **flags) for who, pair in all.items()}
        title = f"{flags['rate']} per second"
        figures = lab.rounds(title, runs, lambda report: report["latency_us"]["p99"])
    each = ", ".join(f"{who} {median(of):.0f}" for who, of in figures.items())
    results.add(f"{title}: p99 of weir / {name}", ratio(figures, "weir", name), note=f"µs: {each}")
