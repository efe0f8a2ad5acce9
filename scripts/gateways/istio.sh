# Sourced by scripts/gateways/tests.sh: Istio with weir, as examples/istio installs it.
#
# The proxies run the Envoy of scripts/install-envoy, which has no filters of Istio's own: telemetry, exchange of metadata
# and ALPN are off.
#
# shellcheck shell=bash disable=SC2154,SC2317

istio_tests=(
  the_ingress_gateway_of_istio_limits_addresses_and_routes
  sidecars_of_istio_limit_callers
  proxies_of_istio_verify_weirs_own_certificate
)

helm_in() { # namespace argument…
  helm --namespace "$1" "${@:2}" --timeout 3m >"$work/helm.log" 2>&1 || {
    cat "$work/helm.log" >&2
    return 1
  }
}

# Follows the README of the example.
install_istio() {
  ! kubectl get namespace ratelimit >/dev/null 2>&1 || return 0
  local module=$gateways/istio/module
  helm_in istio-system install istio-base "$module/manifests/charts/base" --create-namespace
  helm_in istio-system install istiod "$module/manifests/charts/istio-control/istio-discovery" --wait \
    --set global.hub=docker.io/istio,global.tag=1.31,telemetry.enabled=false,autoscaleEnabled=false \
    --set-string env.PILOT_ENABLE_METADATA_EXCHANGE=false,env.PILOT_ENABLE_ALPN_FILTER=false
  helm_in istio-system install istio-ingressgateway "$module/manifests/charts/gateway" --wait --set autoscaling.enabled=false

  kubectl create namespace ratelimit >/dev/null
  kubectl label namespace ratelimit istio-injection=enabled >/dev/null
  helm_in ratelimit install weir helm/weir --values examples/istio/weir-values.yaml --wait
  kubectl apply --filename examples/istio/mtls.yaml --filename examples/istio/shop.yaml >/dev/null
  await_deployment shop cart
  kubectl --namespace shop run client --image=docker.io/curlimages/curl:8.16.0 --restart=Never --command -- sleep 6000 >/dev/null
  kubectl --namespace shop wait --for=condition=Ready pod/client --timeout=2m >/dev/null
  say "started Istio $(cat "$module/VERSION"), $SECONDS s"
}

ingress_of_istio() { addresses istio-system istio=ingressgateway | head -n 1; }

# Requests of a pod of the mesh, through its sidecar.
of_client() { # count path
  in_pod "$(kubectl --namespace shop get pod client --output jsonpath='{.status.podIP}')" \
    bash -c "$(declare -f statuses); statuses $1 http://$(kubectl --namespace shop get service cart --output jsonpath='{.spec.clusterIP}')$2 --header 'host: cart.shop'"
}

the_ingress_gateway_of_istio_limits_addresses_and_routes() {
  install_istio
  local url
  url=http://$(ingress_of_istio)
  wait_for 60 "the shop answers" answers "$url/" 
  kubectl apply --filename examples/istio/gateway.yaml >/dev/null
  wait_for 60 "10 requests per minute on the route" passes_of 10 14 "$url/search" --header 'host: shop.example.com'
  wait_for 60 "100 requests per minute elsewhere" passes_of 100 104 "$url/" --header 'host: shop.example.com'
  kubectl delete --filename examples/istio/gateway.yaml >/dev/null
  wait_for 60 "no limit without the filter" passes_of 20 20 "$url/search" --header 'host: shop.example.com'
}

answers() { [[ $(statuses 1 "$1" --header "host: shop.example.com") == "200 " ]]; }

# Whether so many of some requests pass, of one whole minute.
passes_of() { # passed sent url argument-of-curl…
  local seen
  if (($1 < $2)); then sleep $((60 - $(date +%s) % 60)); fi
  seen=$(statuses "${@:2}")
  [[ $(grep -o 200 <<<"$seen" | wc -l) == "$1" ]] || { echo "$seen" && return 1; }
}

sidecars_of_istio_limit_callers() {
  install_istio
  [[ $(of_client 12 /) == "$(printf '200 %.0s' {1..12})" ]] || fail "all requests of the client pass" "$(of_client 12 /)"
  kubectl apply --filename examples/istio/sidecar.yaml >/dev/null
  wait_for 180 "10 requests per minute of the caller" ten_of_client
  kubectl delete --filename examples/istio/sidecar.yaml >/dev/null
}

ten_of_client() {
  local seen
  sleep $((60 - $(date +%s) % 60))
  seen=$(of_client 14 /)
  [[ $(grep -o 200 <<<"$seen" | wc -l) == 10 && $(grep -o 429 <<<"$seen" | wc -l) == 4 ]] || { echo "$seen" && return 1; }
}

# The values and resources in place of those of the mesh's TLS.
proxies_of_istio_verify_weirs_own_certificate() {
  install_istio
  kubectl delete --filename examples/istio/mtls.yaml >/dev/null
  certificate weir-tls /CN=weir DNS:weir.ratelimit.svc.cluster.local
  kubectl --namespace ratelimit create secret tls weir-grpc-tls --cert="$work/weir-tls.crt" --key="$work/weir-tls.key" >/dev/null
  helm_in ratelimit upgrade weir helm/weir --values examples/istio/weir-values.yaml --values examples/istio/weir-values-tls.yaml --wait
  kubectl --namespace istio-system create secret generic weir-ca --from-file=ca.crt="$work/ca.crt" >/dev/null
  kubectl apply --filename examples/istio/gateway-tls.yaml --filename examples/istio/gateway.yaml >/dev/null
  wait_for 180 "10 requests per minute on the route" passes_of 10 14 "http://$(ingress_of_istio)/search" --header 'host: shop.example.com'
}
