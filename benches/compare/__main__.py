"""Measures weir against minimal servers and against its targets.

Run it as `python3 benches/compare`; `--help` lists the options. benches/load/README.md describes the
method. Needs Linux and Python 3.9 or later.
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
from scenarios import (
    cpu, disk, hostile, latency, leases, memory, other, redis, replay, resp, start, throughput, tls)

SCENARIOS = {
    "cpu": cpu,
    "throughput": throughput,
    "latency": latency,
    "redis": redis,
    "leases": leases,
    "disk": disk,
    "resp": resp,
    "start": start,
    "memory": memory,
    "hostile": hostile,
    "tls": tls,
    "replay": replay,
    "other": other,
}

OTHERS = """\
other servers:
  --other NAME=COMMAND starts any server of Envoy's Rate Limit Service v3. COMMAND is split into words
  as a shell does, but no shell runs it, and it must stay one process. These words are replaced:

  {port}   the port for gRPC without TLS, on 127.0.0.1
  {port2}, {port3}
           further free ports, for listeners that cannot be turned off
  {rules}  a directory with the rule file bench.yaml
  {root}   the parent of that directory, which is named `rules`
  {redis}  host:port of a Redis that is started for the server

  The server must limit the key `user` of the domain `bench` to more requests than a run makes, as the rule
  file does. benches/load/README.md has examples."""


def arguments():
    lines = [f"  {name:<11} {module.__doc__.splitlines()[0]}" for name, module in SCENARIOS.items()]
    parser = argparse.ArgumentParser(
        prog="python3 benches/compare",
        description=__doc__.splitlines()[0],
        epilog="scenarios:\n" + "\n".join(lines) + "\n\n" + OTHERS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # `choices` would reject an empty list.
    parser.add_argument("scenario", nargs="*", help="scenarios to run, in this order (default: all; "
                        "with --other only the scenario other)")
    parser.add_argument("--quick", action="store_true", help="shorter and fewer runs")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="run only the parts of cpu and hostile whose names contain this text")
    parser.add_argument("--weir", metavar="PATH", help="measure this weir binary instead of building one")
    parser.add_argument("--before", metavar="PATH",
                        help="measure the weir binary of an earlier build beside it, in the scenario redis")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=COMMAND",
                        help="measure another server beside weir, see below; repeatable")
    parser.add_argument("--processor", type=int, default=1, metavar="N",
                        help="the core of pinned runs (default: 1)")
    parser.add_argument("--no-build", action="store_true", help="use the existing binaries")
    parser.add_argument("--json", metavar="FILE", help="also write the rows of the table to this file")
    args = parser.parse_args()
    for name in args.scenario:
        if name not in SCENARIOS:
            parser.error(f"unknown scenario {name!r}; scenarios: {', '.join(SCENARIOS)}")
    try:
        args.other = others(args.other)
    except ValueError as error:
        parser.error(str(error))
    if "other" in args.scenario and not args.other:
        parser.error("the scenario other needs --other NAME=COMMAND")
    if not args.scenario:
        args.scenario = ["other"] if args.other else [name for name in SCENARIOS if name != "other"]
    if args.list:
        print(*lines, sep="\n")
        sys.exit()
    return args


def others(texts):
    """Parses `NAME=COMMAND` pairs. Returns the commands by name."""
    found = {}
    for text in texts:
        name, has_command, command = text.partition("=")
        if not (name and has_command and command):
            raise ValueError(f"--other {text!r}: write NAME=COMMAND")
        if "{port}" not in command:
            raise ValueError(f"--other {name}: the command has no {{port}}, so the server cannot be "
                             "reached")
        if name in ("weir", "noop") or name in found:
            raise ValueError(f"--other {name}: the name is taken")
        found[name] = command
    return found


def main():
    args = arguments()
    # Exits through the context managers, which stop the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = programs(weir=args.weir, build=not args.no_build)
    results = Results()
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(found, args))
        # Prints what was measured before a failure or an interrupt, too.
        stack.callback(lambda: print(results.table()))
        for name in args.scenario:
            results.scenario = lab.scenario = name
            SCENARIOS[name].run(lab, results)
    lab.say(f"done in {time.monotonic() - started:.0f} s")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results.rows(), file, indent=1)
    if args.check and results.missed():
        sys.exit(f"{len(results.missed())} targets missed")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except RuntimeError as error:
        sys.exit(f"error: {error}")
