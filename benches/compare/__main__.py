"""Measures weir against the cheapest servers there can be, and against its aims.

Run it as `python3 benches/compare`; `--help` says more. README.md of benches/load says how it
measures. Linux, Python 3.9 or later, nothing else.
"""

import argparse
import contextlib
import json
import signal
import sys
import time

from build import programs
from lab import Lab
from results import Results
from scenarios import cpu, hostile, latency, memory, redis, start, throughput

SCENARIOS = {
    "cpu": cpu,
    "throughput": throughput,
    "latency": latency,
    "redis": redis,
    "start": start,
    "memory": memory,
    "hostile": hostile,
}


def arguments():
    lines = [f"  {name:<11} {module.__doc__.splitlines()[0]}" for name, module in SCENARIOS.items()]
    parser = argparse.ArgumentParser(
        prog="python3 benches/compare",
        description=__doc__.splitlines()[0],
        epilog="scenarios:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # `choices` would refuse the empty list.
    parser.add_argument("scenario", nargs="*", help="which to run, in this order (all)")
    parser.add_argument("--quick", action="store_true", help="shorter and fewer runs, to try it out")
    parser.add_argument("--check", action="store_true", help="exit with 1 if an aim is missed")
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="of cpu and hostile only the parts whose name has this text")
    parser.add_argument("--weir", metavar="PATH", help="another weir program than this tree's")
    parser.add_argument("--processor", type=int, default=1, metavar="N",
                        help="the processor of pinned runs (1)")
    parser.add_argument("--no-build", action="store_true", help="take the programs as they are")
    parser.add_argument("--json", metavar="FILE", help="write the table's rows there too")
    args = parser.parse_args()
    for name in args.scenario:
        if name not in SCENARIOS:
            parser.error(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    if args.list:
        print(*lines, sep="\n")
        sys.exit()
    return args


def main():
    args = arguments()
    # Servers are stopped on the way out, whatever the way.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = programs(weir=args.weir, build=not args.no_build)
    results = Results()
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(found, args.quick, args.processor, args.only))
        # What was measured before a failure or an interrupt is worth reading too.
        stack.callback(lambda: print(results.table()))
        for name in args.scenario or SCENARIOS:
            results.scenario = lab.scenario = name
            SCENARIOS[name].run(lab, results)
    lab.say(f"done in {time.monotonic() - begun:.0f} s")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results.rows(), file, indent=1)
    if args.check and results.missed():
        sys.exit(f"missed: {len(results.missed())} of the aims")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except RuntimeError as error:
        sys.exit(f"error: {error}")
