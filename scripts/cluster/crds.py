"""Prints the custom resource definitions of tests/chart/crds, for `kubectl apply`.

Usage: crds.py FILE…
"""

import json
import pathlib
import sys

items = []
for file in sys.argv[1:]:
    resource = json.loads(pathlib.Path(file).read_text())
    group, version = resource["apiVersion"].split("/")
    kind = resource["kind"]
    plural = kind.lower() + "s"
    schema = {"openAPIV3Schema": resource["schema"]}
    items.append({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    })
print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
