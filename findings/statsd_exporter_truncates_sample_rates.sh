#!/usr/bin/env bash
# Behavior: statsd_exporter counts a timer line with the sample rate r as int(1/r) observations: it truncates.
#   `@0.00452488687783` is 1/221 to twelve digits. 1/r is 221.00000000000…1 or 220.99999999999…9 by the last digit of
#   r, so a sender that rounds r to nearest loses one observation of every second batch.
# Version: statsd_exporter 0.31.0 (Go module github.com/prometheus/statsd_exporter).
# Source: pkg/line/line.go of the module, where the factor of a sampled timer is computed.
# Why a guess goes wrong: the StatsD specification gives the rate as a decimal number and names no rounding. Counters
#   of the same exporter are multiplied by 1/r without truncation, so a test with counters shows nothing; other
#   receivers round. A rate that both understand has 1/r a little over n: in [n, n + 0.5).
set -euo pipefail
work=$(mktemp -d)
pid=
trap '[[ -z $pid ]] || kill "$pid"; chmod -R u+w "$work"; rm -rf "$work"' EXIT
version=v0.31.0
GOBIN=$work GOFLAGS=-modcacherw GOMODCACHE=$work/modules go install "github.com/prometheus/statsd_exporter@$version" 2>"$work/go.log" ||
  { cat "$work/go.log"; exit 1; }
printf 'statsd_exporter %s\n' "$version"

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
web=$(port) udp=$(port)
"$work/statsd_exporter" --web.listen-address="127.0.0.1:$web" --statsd.listen-udp="127.0.0.1:$udp" \
  --statsd.listen-tcp= >"$work/log" 2>&1 &
pid=$!
for _ in $(seq 100); do curl -sf "127.0.0.1:$web/metrics" >/dev/null && break; sleep 0.1; done

# Each line stands for 221 observations; 1/221 is 0.00452488687782805…
python3 - "$udp" <<'P'
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for line in ["nearest_above:1|ms|@0.004524886877829", "nearest_below:1|ms|@0.004524886877828",
             "counter_above:1|c|@0.004524886877829", "counter_below:1|c|@0.004524886877828"]:
    s.sendto(line.encode(), ("127.0.0.1", int(sys.argv[1])))
P
seen() { curl -s "127.0.0.1:$web/metrics" | sed -n "s/^$1 //p"; }
for _ in $(seq 100); do [[ -n $(seen counter_below) ]] && break; sleep 0.1; done

above=$(seen nearest_above_count) below=$(seen nearest_below_count)
counter=$(seen counter_above)
printf '221 observations, 1/r below 221: %s are counted\n' "$above"
printf '221 observations, 1/r above 221: %s are counted\n' "$below"
printf 'a counter with the first rate: %s\n' "$counter"
[[ $above == 220 && $below == 221 && $counter == 220.99* ]] || { echo "the behavior has changed"; exit 1; }
