"""Writes what Envoy Gateway generates into the files of tests and examples that have it, in place of what they had.

Usage: write.py VERSION generated|dump|policy FILE… <INPUT

`generated FILE` writes the rules of weir's `/rules` as a rule file. `dump FILE` writes an Envoy's `/config_dump` as `egctl config
envoy-proxy all -A -o json` prints it. `policy FILE` replaces the rules and the route behind the policy in a file of
tests/gateway_policies: its input is `/rules`, and after it `/config_dump`.

The comments at the head of a file stay, with the version that is named there.
"""

import json
import re
import sys
from pathlib import Path

import yaml

version, command, file, *arguments = sys.argv[1:]
file = Path(file)
FILTER = "envoy.filters.http.ratelimit"


class Dumper(yaml.SafeDumper):
    """Indents lists below their keys, as the files do."""

    def increase_indent(self, flow=False, indentless=False):
        return super().increase_indent(flow, False)

    def ignore_aliases(self, data):
        return True


def as_yaml(value):
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, width=200)


def rule_file(rules, route):
    """Returns the rules of a route as a rule file: without what weir adds, which Envoy Gateway cannot send."""
    result = {"descriptors": []}
    for rule in rules:
        if f"/{route}/" not in rule["entries"][0]["key"]:
            continue
        result = {"domain": rule["domain"], **result}
        descriptors = result["descriptors"]
        for entry in rule["entries"]:
            wanted = {key: text for key, text in entry.items() if text}
            found = next((item for item in descriptors if {**item, **wanted} == item), None)
            if not found:
                descriptors.append(found := wanted)
            last, descriptors = found, found.setdefault("descriptors", [])
        limit = rule["limits"][0]
        last["rate_limit"] = {"unit": limit["unit"], "requests_per_unit": limit["requests_per_unit"]}
    remove_empty(result)
    return result


def remove_empty(descriptor):
    for below in descriptor["descriptors"]:
        remove_empty(below)
    if not descriptor["descriptors"]:
        del descriptor["descriptors"]


def settings_of_route(dump, route):
    """Returns the settings of the filter on a route."""
    for config in dump["configs"]:
        for dynamic in config.get("dynamic_route_configs", []):
            for host in dynamic["route_config"].get("virtual_hosts", []):
                for found in host["routes"]:
                    if f"/{route}/" in found.get("name", ""):
                        return found["typed_per_filter_config"][FILTER]
    raise SystemExit(f"no route {route}")


def head_of(text):
    """Returns the comments before the first key, with this version."""
    lines = text.split("\n")
    head = lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]
    return [re.sub(r"Envoy Gateway v[0-9.]*[0-9]", f"Envoy Gateway {version}", line) for line in head]


def main():
    decoder, text = json.JSONDecoder(), sys.stdin.read().strip()
    values = []
    while text:
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:].strip()
    old = file.read_text()
    if command == "generated":
        new = "\n".join(head_of(old)) + "\n" + as_yaml(rule_file(values[0]["rules"], *arguments))
    elif command == "dump":
        configs = [config for config in values[0]["configs"] if not config["@type"].endswith(".SecretsConfigDump")]
        # The name of a pod is another one in each run.
        new = json.dumps({"envoy-gateway-system": {"envoy-default-eg": {"configs": configs}}}, indent=1) + "\n"
    else:
        policy = old.split("\n---\n")[0]
        route = yaml.safe_load(policy)["spec"]["targetRefs"][0]["name"]
        parts = [policy, as_yaml(rule_file(values[0]["rules"], route)).rstrip(), as_yaml(settings_of_route(values[1], route)).rstrip()]
        new = "\n---\n".join(parts) + "\n"
        head = head_of(policy)
        new = "\n".join(head + new.split("\n")[len(head):])
    file.write_text(new)


main()
