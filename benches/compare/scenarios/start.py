"""Time until weir is ready, and the effect of reloading rules on latency."""

import os
import threading
import time
from statistics import median

import rules
from servers import wait_until_ready

REQUEST = {"domain": "bench", "descriptors": [{"entries": [{"key": "user", "value": "u1"}]}]}


def run(lab, results):
    ready(lab, results, 1000, 0.1)
    ready(lab, results, 100_000, 2.0)
    reload(lab, results)


def ready(lab, results, count, most):
    directory = lab.rules(rules.by_value(count, "unit: day, requests_per_unit: 1000000"))
    # A file that is younger than two seconds may still be written, and is read again after 100 ms.
    time.sleep(2)
    took = []
    for _ in range(lab.pairs):
        started = time.monotonic()
        with lab.weir(directory, pinned=False, ready=False) as weir:
            wait_until_ready(weir, REQUEST)
            took.append(time.monotonic() - started)
            lab.say(f"{count} rules, ready after {1000 * took[-1]:.0f} ms")
    results.add(f"{count} rules: until the first OK", 1000 * median(took), "ms", most=1000 * most)


def reload(lab, results):
    """Compares the latency under load with new rules four times per second and without."""
    seconds = 2 if lab.quick else 5
    texts = [rules.by_value(1000, f"unit: day, requests_per_unit: {n}") for n in (10**6, 10**7)]
    directory = lab.rules(texts[0])
    load = {"keys": 1000, "connections": 2, "concurrency": 4096, "rate": 10_000, "warmup": 0.3,
            "seconds": seconds}
    with lab.weir(directory, pinned=False, settings=["rules.poll=0"]) as weir:
        def quiet():
            return lab.load(weir, pinned=False, **load)

        def reloading():
            before = weir.metric("weir_config_load_success_total")
            stop = threading.Event()
            writer = threading.Thread(target=rewrite, args=(directory, texts, stop))
            writer.start()
            try:
                report = quiet()
            finally:
                stop.set()
                writer.join()
            loads = weir.metric("weir_config_load_success_total") - before
            if loads < seconds:
                raise RuntimeError(f"rules were loaded only {loads:.0f} times")
            return report

        figures = lab.rounds("p99 in µs, loading 1000 rules", {"no": quiet, "yes": reloading},
                             lambda report: report["latency_us"]["p99"], count=5)
    moved = median(b - a for a, b in zip(figures["no"], figures["yes"]))
    results.add("loading 1000 rules: p99 moves by", moved / 1e3, "ms", most=1.0,
                note=f"µs: from {median(figures['no']):.0f} to {median(figures['yes']):.0f}")


def rewrite(directory, texts, stop):
    turn = 0
    while not stop.wait(0.25):
        turn += 1
        (directory / ".new").write_text(texts[turn % 2])
        os.rename(directory / ".new", directory / "bench.yaml")
