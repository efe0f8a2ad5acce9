# Sourced by scripts/test-gateways: what must hold with the gateways. A test is a function whose name says it.
#
# shellcheck shell=bash disable=SC2154 # $work, $gateways and $write are those of scripts/test-gateways

# shellcheck source=scripts/gateways/envoy-gateway.sh
source scripts/gateways/envoy-gateway.sh
# shellcheck source=scripts/gateways/istio.sh
source scripts/gateways/istio.sh

# shellcheck disable=SC2034 # used by scripts/test-gateways
tests=("${envoy_gateway_tests[@]}" "${istio_tests[@]}")

fail() { # expected seen
  say "expected $1. Seen: $2"
  exit 1
}

# Waits until a Deployment has its pods. `kubectl rollout status` fails where there is none yet.
await_deployment() { # namespace name
  kubectl --namespace "$1" wait --for=create "deployment/$2" --timeout=2m >/dev/null
  kubectl --namespace "$1" rollout status "deployment/$2" --timeout=3m >/dev/null
}

# Prints the addresses of the pods that run.
addresses() { # namespace selector
  kubectl --namespace "$1" get pods --selector "$2" --field-selector status.phase=Running \
    --output jsonpath='{range .items[?(@.status.podIP)]}{.status.podIP}{"\n"}{end}'
}

# Runs a command in the network of a pod.
in_pod() { # address command…
  nsenter --net="/run/netns/$1" "${@:2}"
}

# Sends requests one after the other. Prints their statuses.
statuses() { # count url argument-of-curl…
  local i
  for ((i = 0; i < $1; i++)); do
    curl --silent --max-time 10 --output /dev/null --write-out '%{http_code} ' "${@:3}" "$2" || true
  done
}

