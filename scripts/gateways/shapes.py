"""Applies policies of many shapes to Envoy Gateway, and compares the requests that pass with what each policy says.

Usage: shapes.py apply | names | send GATEWAY=ENVOY-ADDRESS…

`apply` prints the resources, `names` the names of their routes. `send` sends the requests, and ends with status 1 if any shape passes other
requests than its policy says.
"""

import http.client
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field

UNIT_SECONDS = {"Second": 1, "Minute": 60, "Hour": 3600, "Day": 86400, "Week": 604800}
GRPC = "grpc"


@dataclass
class Requests:
    """Requests that are alike, and how many of them pass."""

    passed: int
    sent: int
    headers: dict = field(default_factory=dict)
    path: str = "/"
    method: str = "GET"
    source: str = "10.203.1.1"
    host: str = ""
    port: int = 10080


@dataclass
class Shape:
    """A policy for a route of its own."""

    name: str
    rules: str
    requests: list
    # Other fields of the route and the policy than usual.
    kind: str = "HTTPRoute"
    gateway: str = "eg"
    hosts: tuple = ("",)
    matches: str = "[{ path: { type: PathPrefix, value: / } }]"
    routes: int = 1
    target: str = ""
    policy: str = ""
    lua: str = ""


def per_hour(requests, selectors="", more=""):
    clients = f"clientSelectors: [{{ {selectors} }}], " if selectors else ""
    return f"[{{ {clients}limit: {{ requests: {requests}, unit: Hour }}{more} }}]"


def headers(*matches):
    return "headers: [" + ", ".join(f"{{ {match} }}" for match in matches) + "]"


def ask(passed, sent, path="/", method="GET", source="10.203.1.1", host="", port=10080, **values):
    return Requests(passed, sent, {name.replace("_", "-"): value for name, value in values.items()}, path, method, source, host, port)


EXACT, DISTINCT = "name: x-user, value: ann", "name: x-user, type: Distinct"
REGEX = "name: x-user, type: RegularExpression, value: 'a.*n'"
TOKENS = 'function envoy_on_request(handle) handle:streamInfo():dynamicMetadata():set("weir", "tokens", 3) end'
LIMIT = (
    'function envoy_on_request(handle) handle:streamInfo():dynamicMetadata():set("weir", "limit",'
    ' { requests_per_unit = 2, unit = "HOUR" }) end'
)
FROM_TOKENS = "{ from: Metadata, metadata: { namespace: weir, key: tokens } }"

SHAPES = [
    # Headers
    Shape("no-selectors", per_hour(3), [ask(3, 5)]),
    Shape("exact", per_hour(2, headers(EXACT)), [ask(2, 4, x_user="ann"), ask(4, 4, x_user="bob"), ask(4, 4)]),
    Shape("regex", per_hour(2, headers(REGEX)), [ask(1, 1, x_user="ann"), ask(1, 3, x_user="alban"), ask(3, 3, x_user="bob")]),
    Shape("distinct", per_hour(2, headers(DISTINCT)), [ask(2, 3, x_user="ann"), ask(2, 3, x_user="bob"), ask(3, 3)]),
    Shape(
        "exact-inverted",
        per_hour(2, headers(EXACT + ", invert: true")),
        [ask(3, 3, x_user="ann"), ask(1, 1, x_user="bob"), ask(1, 3, x_user="cid")],
    ),
    Shape("regex-inverted", per_hour(2, headers(REGEX + ", invert: true")), [ask(3, 3, x_user="ann"), ask(2, 3, x_user="bob")]),
    Shape(
        "two-exact",
        per_hour(2, headers(EXACT, "name: x-plan, value: free")),
        [ask(2, 3, x_user="ann", x_plan="free"), ask(3, 3, x_user="ann", x_plan="paid"), ask(3, 3, x_user="ann")],
    ),
    Shape(
        "two-distinct",
        per_hour(2, headers(DISTINCT, "name: x-plan, type: Distinct")),
        [ask(2, 3, x_user="ann", x_plan="free"), ask(2, 3, x_user="ann", x_plan="paid"), ask(3, 3, x_user="ann")],
    ),
    Shape(
        "exact-and-distinct",
        per_hour(2, headers("name: x-plan, value: free", DISTINCT)),
        [ask(2, 3, x_user="ann", x_plan="free"), ask(2, 3, x_user="bob", x_plan="free"), ask(3, 3, x_user="ann", x_plan="paid")],
    ),
    Shape(
        "two-selectors",
        f"[{{ clientSelectors: [{{ {headers(EXACT)} }}, {{ {headers('name: x-plan, value: free')} }}],"
        " limit: { requests: 2, unit: Hour } }]",
        [ask(2, 3, x_user="ann", x_plan="free"), ask(3, 3, x_user="ann")],
    ),
    # Addresses
    Shape(
        "cidr",
        per_hour(3, "sourceCIDR: { value: 10.203.1.0/24 }"),
        [ask(2, 2), ask(1, 2, source="10.203.1.2"), ask(4, 4, source="10.203.2.1")],
    ),
    Shape(
        "cidr-distinct",
        per_hour(2, "sourceCIDR: { type: Distinct, value: 10.203.1.0/24 }"),
        [ask(2, 3), ask(2, 3, source="10.203.1.2"), ask(3, 3, source="10.203.2.1")],
    ),
    Shape(
        "cidr-inverted",
        per_hour(2, "sourceCIDR: { value: 10.203.1.0/24, invert: true }"),
        [ask(3, 3), ask(2, 3, source="10.203.2.1")],
    ),
    Shape(
        "cidr-and-header",
        per_hour(2, f"sourceCIDR: {{ value: 10.203.1.0/24 }}, {headers(DISTINCT)}"),
        [ask(2, 3, x_user="ann"), ask(2, 3, x_user="bob"), ask(3, 3, x_user="ann", source="10.203.2.1")],
    ),
    Shape(
        "all-addresses-distinct",
        per_hour(2, "sourceCIDR: { type: Distinct, value: 0.0.0.0/0 }"),
        [ask(2, 3), ask(2, 3, source="10.203.2.1")],
    ),
    # Paths, methods, queries
    Shape("path-exact", per_hour(2, "path: { type: Exact, value: /a }"), [ask(2, 3, path="/a"), ask(3, 3, path="/a/b")]),
    Shape("path-prefix", per_hour(2, "path: { value: /a }"), [ask(1, 1, path="/a"), ask(1, 2, path="/a/b"), ask(3, 3, path="/b")]),
    Shape(
        "path-regex",
        per_hour(2, "path: { type: RegularExpression, value: '/[0-9]+' }"),
        [ask(1, 1, path="/1"), ask(1, 2, path="/22"), ask(3, 3, path="/b")],
    ),
    Shape("path-inverted", per_hour(2, "path: { value: /a, invert: true }"), [ask(3, 3, path="/a"), ask(2, 3, path="/b")]),
    Shape("method", per_hour(2, "methods: [{ value: POST }]"), [ask(2, 3, method="POST"), ask(3, 3)]),
    Shape(
        "methods",
        per_hour(2, "methods: [{ value: POST }, { value: PUT }]"),
        [ask(1, 1, method="POST"), ask(1, 2, method="PUT"), ask(3, 3)],
    ),
    Shape("method-inverted", per_hour(2, "methods: [{ value: GET, invert: true }]"), [ask(3, 3), ask(2, 3, method="PUT")]),
    Shape("query", per_hour(2, "queryParams: [{ name: q, value: a }]"), [ask(2, 3, path="/?q=a"), ask(3, 3, path="/?q=b"), ask(3, 3)]),
    Shape(
        "query-regex",
        per_hour(2, "queryParams: [{ name: q, type: RegularExpression, value: 'a+' }]"),
        [ask(1, 1, path="/?q=a"), ask(1, 2, path="/?x=1&q=aa"), ask(3, 3, path="/?q=b")],
    ),
    Shape(
        "query-distinct",
        per_hour(2, "queryParams: [{ name: q, type: Distinct }]"),
        [ask(2, 3, path="/?q=a"), ask(2, 3, path="/?q=b"), ask(3, 3)],
    ),
    Shape(
        "query-inverted",
        per_hour(2, "queryParams: [{ name: q, value: a, invert: true }]"),
        [ask(3, 3, path="/?q=a"), ask(2, 3, path="/?q=b")],
    ),
    Shape(
        "path-method-header",
        per_hour(2, f"path: {{ value: /a }}, methods: [{{ value: GET }}], {headers(DISTINCT)}"),
        [ask(2, 3, path="/a", x_user="ann"), ask(2, 3, path="/a", x_user="bob"), ask(3, 3, path="/a", method="PUT", x_user="ann")],
    ),
    # Several rules
    Shape(
        "two-rules",
        f"[{{ clientSelectors: [{{ {headers(DISTINCT)} }}], limit: {{ requests: 2, unit: Hour }} }},"
        " { limit: { requests: 5, unit: Hour } }]",
        # Those over their own limit count for all, too.
        [ask(2, 2, x_user="ann"), ask(2, 2, x_user="bob"), ask(1, 2, x_user="cid")],
    ),
    Shape(
        "one-cidr-twice",
        "[{ clientSelectors: [{ sourceCIDR: { value: 10.203.1.0/24 }, path: { value: /a } }], limit: { requests: 2, unit: Hour } },"
        " { clientSelectors: [{ sourceCIDR: { value: 10.203.1.0/24 }, path: { value: /b } }], limit: { requests: 3, unit: Hour } }]",
        [ask(2, 4, path="/a"), ask(3, 4, path="/b"), ask(4, 4, path="/a", source="10.203.2.1")],
    ),
    Shape("zero", per_hour(0), [ask(0, 2)]),
    Shape("most", per_hour(4294967295), [ask(5, 5)]),
    Shape("shadow", per_hour(2, more=", shadowMode: true"), [ask(5, 5)]),
    Shape("with-local", per_hour(2), [ask(2, 4)], policy="local: { rules: [{ limit: { requests: 100, unit: Hour } }] }"),
    # Costs
    Shape("cost", per_hour(10, more=", cost: { request: { from: Number, number: 3 } }"), [ask(3, 5)]),
    Shape(
        "cost-of-responses",
        per_hour(5, more=", cost: { request: { from: Number, number: 0 }, response: { from: Number, number: 2 } }"),
        [ask(3, 5)],
    ),
    Shape("cost-from-metadata", per_hour(10, more=f", cost: {{ request: {FROM_TOKENS} }}"), [ask(3, 5)], lua=TOKENS),
    Shape(
        "cost-of-responses-from-metadata",
        per_hour(5, headers(DISTINCT), f", cost: {{ request: {{ from: Number, number: 0 }}, response: {FROM_TOKENS} }}"),
        [ask(2, 4, x_user="ann"), ask(2, 4, x_user="bob")],
        lua=TOKENS,
    ),
    Shape(
        "limit-from-metadata",
        "[{ limit: { requests: 4, unit: Hour, fromMetadata: { namespace: weir, key: limit } } }]",
        [ask(2, 5)],
        lua=LIMIT,
    ),
    Shape(
        "limit-from-missing-metadata",
        "[{ limit: { requests: 4, unit: Hour, fromMetadata: { namespace: weir, key: limit } } }]",
        [ask(4, 5)],
    ),
    # Several routes, hosts, matches, listeners
    Shape("own", per_hour(2), [ask(2, 3), ask(2, 3, host="1")], routes=2),
    Shape("shared", per_hour(3, more=", shared: true"), [ask(2, 2), ask(1, 2, host="1")], routes=2),
    Shape(
        "shared-distinct",
        per_hour(3, headers(DISTINCT), ", shared: true"),
        [ask(2, 2, x_user="ann"), ask(1, 2, host="1", x_user="ann"), ask(3, 4, host="1", x_user="bob")],
        routes=2,
    ),
    Shape("hosts", per_hour(2), [ask(2, 3), ask(2, 3, host="-b")], hosts=("", "-b")),
    Shape(
        "matches",
        per_hour(2),
        [ask(2, 3, path="/a"), ask(2, 3, path="/b")],
        matches="[{ path: { type: PathPrefix, value: /a } }, { path: { type: PathPrefix, value: /b } }]",
    ),
    Shape("listeners", per_hour(2), [ask(2, 3, port=8001), ask(2, 3, port=8002)], gateway="two"),
    Shape(
        "listeners-shared",
        per_hour(2, more=", shared: true"),
        [ask(2, 3, port=8001), ask(0, 2, port=8002)],
        gateway="two",
    ),
    Shape("section", per_hour(2), [ask(2, 3)], target=", sectionName: one"),
    # Units
    *(
        Shape(f"per-{unit.lower()}", f"[{{ limit: {{ requests: 3, unit: {unit} }} }}]", [ask(3, 5)])
        for unit in ("Second", "Minute", "Day", "Week", "Month", "Year")
    ),
    # gRPC
    Shape("grpc", per_hour(2), [ask(2, 4, method=GRPC, path="/shop.Cart/Add")], kind="GRPCRoute", matches="[{}]"),
    Shape(
        "grpc-method",
        per_hour(2, headers(DISTINCT)),
        [ask(2, 3, method=GRPC, path="/shop.Cart/Add", x_user="ann"), ask(2, 3, method=GRPC, path="/shop.Cart/Add", x_user="bob")],
        kind="GRPCRoute",
        matches="[{ method: { service: shop.Cart, method: Add } }]",
    ),
]


def host_of(shape, suffix=""):
    return f"{shape.name}{suffix}.example.com"


def resources(shape):
    """Returns the YAML of a shape's routes and policies."""
    targets = []
    for number in range(shape.routes):
        name = shape.name + (str(number) if number else "")
        targets.append(f"{{ group: gateway.networking.k8s.io, kind: {shape.kind}, name: {name}{shape.target} }}")
        hosts = [f"{name}{suffix}.example.com" for suffix in shape.hosts]
        yield f"""
apiVersion: gateway.networking.k8s.io/v1
kind: {shape.kind}
metadata: {{ name: {name}, namespace: default }}
spec:
  parentRefs: [{{ name: {shape.gateway} }}]
  hostnames: {json.dumps(hosts)}
  rules: [{{ name: one, matches: {shape.matches}, backendRefs: [{{ name: {"backend-h2" if shape.kind == "GRPCRoute" else "backend"}, port: 3000 }}] }}]
"""
    yield f"""
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {{ name: {shape.name}, namespace: default }}
spec:
  targetRefs: [{", ".join(targets)}]
  rateLimit: {{ {shape.policy + ", " if shape.policy else ""}global: {{ rules: {shape.rules} }} }}
"""
    if shape.lua:
        yield f"""
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {{ name: {shape.name}, namespace: default }}
spec:
  targetRefs: [{", ".join(targets)}]
  lua: [{{ type: Inline, inline: {json.dumps(shape.lua)} }}]
"""


def statuses(address, shape, requests):
    """Sends requests on one connection. Returns their statuses: of gRPC those that Envoy gives a limited one."""
    host = host_of(shape, requests.host)
    if requests.method == GRPC:
        command = ["curl", "-s", "-o", "/dev/null", "-D", "-", "--http2-prior-knowledge", "-X", "POST", "-H", f"host: {host}"]
        command += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        for name, value in requests.headers.items():
            command += ["-H", f"{name}: {value}"]
        command.append(f"http://{address}:{requests.port}{requests.path}")
        answers = [subprocess.run(command, capture_output=True, text=True).stdout for _ in range(requests.sent)]
        return [429 if "grpc-status: 14" in answer or "grpc-status: 8" in answer else 200 for answer in answers]
    connection = http.client.HTTPConnection(address, requests.port, timeout=10, source_address=(requests.source, 0))
    seen = []
    for _ in range(requests.sent):
        connection.request(requests.method, requests.path, headers={"host": host, **requests.headers})
        response = connection.getresponse()
        response.read()
        seen.append(response.status)
        if "response" in shape.rules:
            # Its cost is charged when it has been sent.
            time.sleep(0.2)
    connection.close()
    return seen


def wait_for_window(shape):
    """Waits until no window ends soon."""
    for unit, seconds in UNIT_SECONDS.items():
        if f"unit: {unit}" in shape.rules:
            # The requests of a shape take less than half a second, or some seconds with costs of responses.
            left = seconds - time.time() % seconds
            if left < min(0.7 * seconds, 6):
                time.sleep(left + 0.02)


def differences(addresses, shape):
    wait_for_window(shape)
    for requests in shape.requests:
        seen = statuses(addresses[shape.gateway], shape, requests)
        expected = [200] * requests.passed + [429] * (requests.sent - requests.passed)
        if seen != expected:
            yield f"{requests}: {seen}"


def main():
    command, *arguments = sys.argv[1:]
    if command == "apply":
        print("---".join(text for shape in SHAPES for text in resources(shape)))
        return
    if command == "names":
        for shape in SHAPES:
            print(shape.name)
        return
    addresses = dict(argument.split("=") for argument in arguments)
    different = 0
    for shape in SHAPES:
        found = list(differences(addresses, shape))
        print("different" if found else "ok", shape.name)
        for text in found:
            print("   ", text)
        different += bool(found)
    print(f"{len(SHAPES)} shapes, {different} different")
    sys.exit(different > 0)


main()
