"""Validates manifests against the schemas of two versions of Kubernetes, and of custom resources.

Usage: validate.py OLDEST-VERSION DIRECTORY-OF-CRD-SCHEMAS FILE…

The other version is the newest that kubernetes-validate has. Unknown fields are errors. Each error is
a line; the last line counts the documents.
"""

import functools
import json
import pathlib
import sys

import jsonschema
import yaml
from kubernetes_validate import utils

# It reads 2 MB of definitions for each document otherwise.
utils.schema_contents = functools.cache(utils.schema_contents)


def strict(schema):
    """Copies the schema of a custom resource so that it refuses unknown fields."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: strict(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        copy["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            copy.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        copy["type"] = ["integer", "string"]
    return copy


def custom_resources(directory):
    validators = {}
    for path in pathlib.Path(directory).glob("*.json"):
        crd = json.loads(path.read_text())
        schema = strict(crd["schema"])
        # The API server validates the metadata of all resources.
        schema["properties"]["metadata"] = {"type": "object"}
        validators[crd["apiVersion"], crd["kind"]] = jsonschema.Draft202012Validator(schema)
    return validators


def errors(document, customs, version):
    custom = customs.get((document["apiVersion"], document["kind"]))
    if custom:
        return [f"{list(error.path)}: {error.message}" for error in custom.iter_errors(document)]
    try:
        utils.validate(document, version, strict=True)
    except utils.ValidationError as error:
        return [f"{list(error.path)}: {error.message}"]
    except utils.SchemaNotFoundError as error:
        return [error.message]
    return []


def main(oldest, crds, *files):
    customs = custom_resources(crds)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    seen = set()
    for file in files:
        for document in yaml.load_all(pathlib.Path(file).read_text(), Loader=loader):
            text = json.dumps(document, sort_keys=True)
            if document is None or text in seen:
                continue
            seen.add(text)
            for version in [oldest, utils.latest_version()]:
                for error in errors(document, customs, version):
                    name = document["metadata"]["name"]
                    print(f"{pathlib.Path(file).name}, {document['kind']} {name}, {version}: {error[:500]}")
    print(f"{len(seen)} documents")


main(*sys.argv[1:])
