"""Builds the programs to measure."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LOAD = ROOT / "benches" / "load"


def programs(weir, build):
    """Returns the paths of all programs by name. `weir` replaces the one built here."""
    if build:
        cargo(LOAD, "build", "--release", "--locked", "--bins")
        wanted = ["--example", "memory_per_key"] + ([] if weir else ["--bin", "weir"])
        cargo(ROOT, "build", "--release", "--locked", *wanted)
    loads, own = released(LOAD), released(ROOT)
    found = {name: loads / name for name in ("load", "noop", "noop-h2", "hostile")}
    found["weir"] = Path(weir).resolve() if weir else own / "weir"
    found["memory_per_key"] = own / "examples" / "memory_per_key"
    for path in found.values():
        if not os.access(path, os.X_OK):
            sys.exit(f"{path} does not exist: run without --no-build")
    return found


def cargo(where, *args):
    if subprocess.run(["cargo", *args], cwd=where).returncode != 0:
        sys.exit(f"cargo {' '.join(args)} failed in {where}")


def released(where):
    """Returns the target directory of cargo, which the environment can change."""
    command = ["cargo", "metadata", "--no-deps", "--format-version=1", "--offline"]
    metadata = subprocess.run(command, cwd=where, stdout=subprocess.PIPE, check=True)
    return Path(json.loads(metadata.stdout)["target_directory"]) / "release"
