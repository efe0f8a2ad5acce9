# Sourced by scripts/gateways/tests.sh: Envoy Gateway with weir, as examples/envoy-gateway installs it.
#
# shellcheck shell=bash disable=SC2016,SC2034,SC2154,SC2317

envoy_gateway_tests=(
  the_example_of_envoy_gateway_limits_each_user
  recorded_files_are_what_is_generated
  policies_of_all_shapes_pass_what_they_say
  edits_are_enforced
  restarts_keep_rules_and_counts
  the_last_policy_ends_all_limits
)

example=examples/envoy-gateway
system=envoy-gateway-system
replicas=app.kubernetes.io/name=envoy-ratelimit

system() { kubectl --namespace "$system" "$@"; }

helm_of_envoy_gateway() { # command argument…
  helm "$1" eg "$work/gateway-helm" --namespace "$system" "${@:2}" --timeout 3m >"$work/helm.log" 2>&1 || {
    cat "$work/helm.log" >&2
    return 1
  }
}

# Follows the README of the example.
install_envoy_gateway() {
  [[ ! -d $work/gateway-helm ]] || return 0
  local module=$gateways/envoy-gateway/module version
  version=$(cat "$module/VERSION")
  # Go keeps modules read-only.
  tar --create --directory "$module/charts" gateway-helm | tar --extract --directory "$work"
  chmod -R u+w "$work/gateway-helm"
  # As its release does.
  sed -e "s|\${GatewayImage}|docker.io/envoyproxy/gateway:$version|" -e 's|\${GatewayImagePullPolicy}|IfNotPresent|' \
    "$work/gateway-helm/values.tmpl.yaml" >"$work/gateway-helm/values.yaml"
  helm_of_envoy_gateway install --create-namespace --wait
  kubectl apply --filename "$module/examples/kubernetes/quickstart.yaml" >/dev/null

  kubectl apply --filename $example/redis.yaml --filename $example/weir-settings.yaml >/dev/null
  system create configmap weir-overlay --from-file=$example/limits.overlay.yaml >/dev/null
  # The shapes of policies set metadata with Lua. A busy machine must not let requests pass without a decision.
  helm_of_envoy_gateway upgrade --reset-then-reuse-values --values $example/envoy-gateway-values.yaml \
    --set config.envoyGateway.extensionApis.enableLua=true,config.envoyGateway.rateLimit.timeout=10s
  system rollout restart deployment/envoy-gateway >/dev/null
  await_deployment "$system" envoy-gateway
  await_deployment "$system" envoy-ratelimit
  await_deployment redis-system redis
  await_deployment default backend
  say "started Envoy Gateway $version with $(system get pods --selector "$replicas" --output name | wc -l) pods of weir, $SECONDS s"
}

# Prints the address of a Gateway's Envoy.
envoy_of() { # gateway
  addresses "$system" "gateway.envoyproxy.io/owning-gateway-name=$1" | head -n 1
}

# Prints the rules of each weir.
rules() {
  local address
  for address in $(addresses "$system" "$replicas"); do
    in_pod "$address" curl --silent --max-time 5 http://localhost:6070/rlconfig
  done
}

# Whether each weir has a text in its rules.
rules_have() { # text count
  [[ $(rules | grep --fixed-strings --count -e "$1") -ge $2 ]]
}

# Whether requests of a new user pass up to a number, and no further.
limit_is() { # requests url host
  local seen
  # A file, since wait_for calls this in another shell.
  echo "$RANDOM-$RANDOM" >"$work/user"
  seen=$(statuses "$(($1 + 1))" "$2" --header "host: $3" --header "x-user: $(cat "$work/user")")
  [[ $seen == "$(printf '200 %.0s' $(seq "$1"))429 " ]] || { echo "$seen" && return 1; }
}

the_example_of_envoy_gateway_limits_each_user() {
  install_envoy_gateway
  kubectl apply --filename $example/backend-traffic-policy.yaml >/dev/null
  wait_for 60 "Envoy Gateway starts an Envoy" await_envoy eg
  wait_for 60 "both weirs have the rules" rules_have rule-0-match-0 2
  local url
  url=http://$(envoy_of eg):10080/get
  # The policy allows 5, the overlay 3 at once.
  wait_for 60 "a user has three requests" limit_is 3 "$url" www.example.com
  wait_for 0 "another user has three requests" limit_is 3 "$url" www.example.com
}

await_envoy() { # gateway
  [[ -n $(envoy_of "$1") ]] && curl --silent --output /dev/null "http://$(envoy_of "$1"):$( [[ $1 == two ]] && echo 8001 || echo 10080)"
}

policies_of_all_shapes_pass_what_they_say() {
  install_envoy_gateway
  kubectl apply --filename scripts/gateways/shapes.yaml >/dev/null
  python3 scripts/gateways/shapes.py apply | kubectl apply --filename - >/dev/null
  wait_for 60 "Envoy Gateway starts an Envoy" await_envoy eg
  wait_for 60 "Envoy Gateway starts an Envoy for other ports" await_envoy two
  wait_for 120 "both Envoys and both weirs have all routes" shapes_are_known
  python3 scripts/gateways/shapes.py send "eg=$(envoy_of eg)" "two=$(envoy_of two)"
  python3 scripts/gateways/shapes.py apply | kubectl delete --filename - >/dev/null
}

# Whether each weir has the rules of all shapes, and Envoys have their limits.
shapes_are_known() {
  local name address missing=0
  rules >"$work/rules"
  for address in $(envoy_of eg) $(envoy_of two); do
    in_pod "$address" curl --silent "http://localhost:19000/config_dump?resource=dynamic_route_configs"
  done >"$work/routes"
  for name in $(python3 scripts/gateways/shapes.py names); do
    if ! grep --quiet --fixed-strings "/$name" "$work/rules" || ! grep --quiet "\"$name.example.com" "$work/routes"; then
      echo "missing: $name"
      missing=1
    fi
  done
  return $missing
}

# Applies a policy for the route "edited".
limit_edited_route() { # requests [unit]
  kubectl apply --filename - >/dev/null <<END
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: { name: edited, namespace: default }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: edited }]
  rateLimit:
    global:
      rules:
        - clientSelectors: [{ headers: [{ name: x-user, type: Distinct }] }]
          limit: { requests: $1, unit: ${2:-Hour} }
END
}

route_edited() { # host…
  local hosts
  hosts=$(printf '%s, ' "$@")
  kubectl apply --filename - >/dev/null <<END
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: edited, namespace: default }
spec:
  parentRefs: [{ name: eg }]
  hostnames: [${hosts%, }]
  rules: [{ backendRefs: [{ name: backend, port: 3000 }] }]
END
}

edits_are_enforced() {
  install_envoy_gateway
  route_edited edited.example.com
  limit_edited_route 2
  wait_for 60 "Envoy Gateway starts an Envoy" await_envoy eg
  local url start
  url=http://$(envoy_of eg):10080/
  wait_for 60 "2 requests pass" limit_is 2 "$url" edited.example.com
  start=$SECONDS
  limit_edited_route 4
  wait_for 60 "the policy is edited: 4 requests pass" limit_is 4 "$url" edited.example.com
  limit_edited_route 3 Day
  wait_for 60 "the unit is edited: 3 requests pass" limit_is 3 "$url" edited.example.com
  route_edited edited.example.com other.example.com
  wait_for 60 "the route has another host: 3 requests of it pass" limit_is 3 "$url" other.example.com
  system create configmap weir-overlay --from-literal=limits.overlay.yaml='
patches: [{ match: { domain: default/eg/*, entries: "httproute/default/edited/*,rule-0-match-0" }, set: { algorithm: gcra, burst: 1 } }]' \
    --dry-run=client --output yaml | kubectl apply --filename - >/dev/null
  wait_for 60 "the overlay is edited: 1 request passes" limit_is 1 "$url" edited.example.com
  system create configmap weir-overlay --from-file=$example/limits.overlay.yaml --dry-run=client --output yaml |
    kubectl apply --filename - >/dev/null
  wait_for 60 "the overlay is as before: 3 requests pass" limit_is 3 "$url" edited.example.com
  kubectl delete backendtrafficpolicy edited >/dev/null
  wait_for 60 "the policy is deleted: all requests pass" all_pass "$url" edited.example.com
  echo "   7 edits in $((SECONDS - start)) s"
}

all_pass() { # url host
  [[ $(statuses 8 "$1" --header "host: $2" --header "x-user: $RANDOM") == "$(printf '200 %.0s' {1..8})" ]]
}

# Whether no request of the last user passes.
is_spent() { # url host
  local seen
  seen=$(statuses 2 "$1" --header "host: $2" --header "x-user: $(cat "$work/user")")
  [[ $seen == "429 429 " ]] || { echo "$seen" && return 1; }
}

restarts_keep_rules_and_counts() {
  install_envoy_gateway
  route_edited edited.example.com
  limit_edited_route 2
  wait_for 60 "Envoy Gateway starts an Envoy" await_envoy eg
  local url deployment
  url=http://$(envoy_of eg):10080/
  wait_for 60 "2 requests pass" limit_is 2 "$url" edited.example.com
  for deployment in envoy-ratelimit envoy-gateway "$(system get deployment --output name \
    --selector gateway.envoyproxy.io/owning-gateway-name=eg | cut -d/ -f2)"; do
    system rollout restart "deployment/$deployment" >/dev/null
    await_deployment "$system" "$deployment"
    url=http://$(envoy_of eg):10080/
    # Envoy passes requests without a decision until it knows the new pods.
    wait_for 30 "the user has spent what there is, after a restart of $deployment" is_spent "$url" edited.example.com
    wait_for 30 "2 requests pass after a restart of $deployment" limit_is 2 "$url" edited.example.com
  done
  limit_edited_route 3
  wait_for 60 "the policy is edited after the restarts: 3 requests pass" limit_is 3 "$url" edited.example.com
  kubectl --namespace redis-system rollout restart deployment/redis >/dev/null
  await_deployment redis-system redis
  wait_for 30 "3 requests pass after a restart of Redis" limit_is 3 "$url" edited.example.com
  system delete pods --selector "$replicas" --grace-period=0 --force >/dev/null 2>&1
  await_deployment "$system" envoy-ratelimit
  wait_for 30 "3 requests pass after all weirs were killed" limit_is 3 "$url" edited.example.com
}

the_last_policy_ends_all_limits() {
  install_envoy_gateway
  route_edited edited.example.com
  limit_edited_route 2
  wait_for 60 "Envoy Gateway starts an Envoy" await_envoy eg
  local url
  url=http://$(envoy_of eg):10080/
  wait_for 60 "2 requests pass" limit_is 2 "$url" edited.example.com
  kubectl delete backendtrafficpolicy --all >/dev/null
  wait_for 60 "all requests pass" all_pass "$url" edited.example.com
  wait_for 60 "no weir has a rule" no_rules
  system rollout restart deployment/envoy-ratelimit >/dev/null
  await_deployment "$system" envoy-ratelimit
  limit_edited_route 2
  wait_for 60 "a policy limits again" limit_is 2 "$url" edited.example.com
}

no_rules() { ! rules | grep httproute; }

# Runs scripts/gateways/write.py for a file, or for a copy of it that must become what the file is.
written() { # command file argument…
  local file=$2 version
  version=$(cat "$gateways/envoy-gateway/module/VERSION")
  if [[ -z $write ]]; then
    file=$work/written
    cp "$2" "$file"
  fi
  .tools/kubernetes-validate/bin/python scripts/gateways/write.py "$version" "$1" "$file" "${@:3}"
  if [[ -z $write ]] && ! diff "$2" "$file" >&2; then
    fail "$2 has what Envoy Gateway generates: see scripts/test-gateways --write" "the differences above"
  fi
}

debug_port_of_weir() { # path
  in_pod "$(addresses "$system" "$replicas" | head -n 1)" curl --silent "http://localhost:6070$1"
}

dump_of_envoy() { in_pod "$(envoy_of eg)" curl --silent http://localhost:19000/config_dump; }

recorded_files_are_what_is_generated() {
  install_envoy_gateway
  wait_for 60 "Envoy Gateway starts an Envoy" await_envoy eg
  kubectl delete backendtrafficpolicy --all >/dev/null
  kubectl apply --filename $example/backend-traffic-policy.yaml >/dev/null
  wait_for 60 "both weirs have the rules" rules_have rule-0-match-0 2
  wait_for 60 "Envoy has the limits" dump_has rule-0-match-0
  debug_port_of_weir /rules | written generated $example/generated.yaml backend
  # Times and versions are others in each run.
  [[ -z $write ]] || dump_of_envoy | written dump tests/envoy_dumps/egctl-config-envoy-proxy.json

  kubectl apply --filename - >/dev/null <<'END'
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: openai, namespace: default }
spec:
  parentRefs: [{ name: eg }]
  hostnames: [www.example.com]
  rules: [{ matches: [{ path: { type: PathPrefix, value: /v1 } }], backendRefs: [{ name: backend, port: 3000 }] }]
END
  local file
  for file in tests/gateway_policies/cost{,-reserve}.yaml; do
    kubectl delete backendtrafficpolicy --all >/dev/null
    wait_for 60 "no weir has a rule" no_rules
    sed '/^---$/,$d' "$file" | kubectl apply --filename - >/dev/null
    wait_for 60 "both weirs have the rules" rules_have rule-0-match 2
    wait_for 60 "Envoy has the limits" dump_has llm_total_token
    { debug_port_of_weir /rules && dump_of_envoy; } | written policy "$file"
  done
  kubectl delete httproute openai >/dev/null
}

dump_has() { dump_of_envoy | grep --quiet --fixed-strings -e "$1"; }
