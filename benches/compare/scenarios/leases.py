"""What leases save: a hot key of two replicas that share a Redis, and of a Redis that is far away."""

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import rules
from lab import ratio

OFF = ("store.leases_for=0s",)

# Requests per second and replica.
RATE = 1000

# Charges only what it admits, as a rule of several limits does.
HOT = """domain: bench
descriptors:
  - key: user
    rate_limits:
      - { unit: hour, requests_per_unit: 4000000000 }
      - { unit: day, requests_per_unit: 4000000000 }
"""


def run(lab, results):
    commands(lab, results)
    redis_cpu(lab, results)
    weir_cpu(lab, results)
    other_keys(lab, results)
    far_away(lab, results)


def commands(lab, results):
    """Two replicas, each with 1000 requests a second of one key, once it is hot. Without what replicas exchange in any
    case."""
    seconds = 3 if lab.quick else 8
    load = {"keys": 1, "rate": RATE, "concurrency": 16, "seconds": seconds + 2, "warmup": 0}
    for name, settings, most in (("with leases", (), 0.05), ("without", OFF, None)):
        with lab.redis(pinned=False) as redis, \
                lab.weir(HOT, pinned=False, settings=settings, redis=redis.grpc) as first, \
                lab.weir(HOT, pinned=False, settings=settings, redis=redis.grpc) as second, \
                ThreadPoolExecutor() as pool:
            time.sleep(1)
            idle, started = called(redis), time.monotonic()
            time.sleep(seconds)
            idle = (called(redis) - idle) / (time.monotonic() - started)
            loads = [pool.submit(lab.load, weir, pinned=False, **load) for weir in (first, second)]
            time.sleep(1)
            before, started = called(redis), time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - started
            calls, admitted = called(redis) - before - idle * passed, 2 * RATE * passed
            for one in loads:
                one.result()
            results.add(f"commands an admission, {name}", calls / admitted, "", most=most)


def redis_cpu(lab, results):
    """The CPU of Redis at 64 in flight."""
    load = {"keys": 1, "concurrency": 64, **lab.duration}
    with lab.redis() as redis, lab.weir(HOT, redis=redis.grpc) as on, \
            lab.weir(HOT, settings=OFF, redis=redis.grpc) as off:
        runs = {
            "on": lambda: lab.load(on, also=[redis], **load)["cpu"][1],
            "off": lambda: lab.load(off, also=[redis], **load)["cpu"][1],
        }
        figures = lab.rounds("Redis, 64 in flight", runs, lambda cpu: cpu)
    results.add("Redis itself, with leases by without", ratio(figures, "on", "off"), "", most=0.1)


def weir_cpu(lab, results):
    """The CPU of a decision from a lease."""
    hot = {"keys": 1, "concurrency": 16, **lab.duration}
    with lab.redis() as redis, lab.weir(HOT, redis=redis.grpc) as leased, lab.weir(HOT) as memory:
        runs = {
            "leased": lambda: lab.load(leased, **hot)["cpu"][0],
            "memory": lambda: lab.load(memory, **hot)["cpu"][0],
        }
        figures = lab.rounds("16 in flight", runs, lambda cpu: cpu)
    results.add("weir from a lease, by memory", ratio(figures, "leased", "memory"), "", most=1.1)


def other_keys(lab, results):
    """The CPU of decisions on other keys while a key is leased here, and while it is leased by another replica: 400
    requests a second keep it hot."""
    others = {"keys": 20_000, "concurrency": 16, **lab.duration}
    hot = {"keys": 1, "rate": 400, "concurrency": 4, "seconds": sum(lab.duration.values()) + 1, "warmup": 0}
    with lab.redis() as redis, lab.weir(HOT, redis=redis.grpc) as weir, lab.weir(HOT, redis=redis.grpc) as another, \
            ThreadPoolExecutor() as pool:
        def beside(replica):
            keeps_hot = pool.submit(lab.load, replica, **hot)
            time.sleep(0.5)
            cpu = lab.load(weir, **others)["cpu"][0]
            keeps_hot.result()
            return cpu

        runs = {"here": lambda: beside(weir), "elsewhere": lambda: beside(another)}
        figures = lab.rounds("other keys, 16 in flight", runs, lambda cpu: cpu, count=2 * lab.pairs)
    results.add("weir, other keys, a key leased here by elsewhere", ratio(figures, "here", "elsewhere"), "", most=1.03)


def far_away(lab, results):
    """The latency of a hot key of a Redis that is 2 ms away."""
    load = {"keys": 1, "rate": 1000, "concurrency": 64, **lab.duration}
    with lab.redis(pinned=False) as redis, lab.delayed(redis, 0.001) as far, \
            lab.weir(HOT, pinned=False, redis=far) as leased, lab.weir(HOT, pinned=False) as memory:
        runs = {
            "leased": lambda: lab.load(leased, pinned=False, **load)["latency_us"]["p50"],
            "memory": lambda: lab.load(memory, pinned=False, **load)["latency_us"]["p50"],
        }
        figures = lab.rounds("Redis 2 ms away", runs, lambda latency: latency)
    costs = f"µs: leased {median(figures['leased']):.0f}, memory {median(figures['memory']):.0f}"
    results.add("p50 with Redis 2 ms away, by memory", ratio(figures, "leased", "memory"), "",
                most=1.5, note=costs)


def called(redis):
    """Returns how many commands a Redis has called, those of scripts too."""
    host, port = redis.grpc.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"INFO commandstats\r\nQUIT\r\n")
        answer = b""
        while piece := connection.recv(1 << 16):
            answer += piece
    rows = re.findall(r"cmdstat_([a-z|]+):calls=(\d+)", answer.decode())
    return sum(int(calls) for name, calls in rows if name not in ("info", "ping", "quit"))
