# Sourced by scripts/test-cluster: what must hold in a cluster. A test is a function whose name says it. Each has a
# namespace of its own, in which Pod Security enforces the profile "restricted".
#
# shellcheck shell=bash disable=SC2154,SC2317 # $helms, $image, $work and $namespace are those of scripts/test-cluster

# shellcheck disable=SC2034 # used by scripts/test-cluster
tests_of_kind=(
  a_release_with_default_values_passes_its_test
  a_release_moves_to_a_disk
)
# shellcheck disable=SC2034
tests=(
  a_release_with_default_values_passes_its_test
  all_value_files_pass_the_api_server_and_pod_security
  an_upgrade_and_a_rollback_lose_no_request
  a_drain_loses_no_request
  an_eviction_leaves_a_replica
  a_rollback_keeps_the_number_of_autoscaled_replicas
  autoscaling_begins_with_the_replicas_of_a_scaled_deployment
  a_release_moves_to_a_disk
  counts_on_a_disk_survive_a_kill
  a_renewed_certificate_is_served
  edited_rules_are_used
  wrong_values_and_rules_leave_a_release_as_it_is
)

run_test() { # name
  local start=$SECONDS
  namespace=${1//_/-}
  kubectl create namespace "$namespace" >/dev/null
  kubectl label namespace "$namespace" pod-security.kubernetes.io/{enforce,warn}=restricted >/dev/null
  "$1"
  echo "ok $1 ($((SECONDS - start)))"
  kubectl delete namespace "$namespace" --wait=false >/dev/null
  namespace=
}

fail() { # expected seen
  say "expected $1. Seen: $2"
  exit 1
}

# A duration that docs promise for changes of ConfigMaps and secrets.
reload_seconds=120
replicas=app.kubernetes.io/instance=weir,app.kubernetes.io/component=ratelimit
rules='domain: test
descriptors:
  - { key: path, rate: 5/h }
  - { key: load, rate: 1000000/h }
'

kube() { kubectl --namespace "$namespace" "$@"; }

# Runs a command of Helm with the namespace.
run_helm() { # helm argument…
  in_cluster "$1" --namespace "$namespace" "${@:2}"
}

# Runs `install`, `upgrade` or `template` of the chart with the image, and waits until replicas are ready.
deploy() { # helm command argument…
  run_helm "$1" "$2" weir helm/weir --set "image.repository=${image%:*},image.tag=${image##*:}" "${@:3}" \
    --wait --timeout 5m >"$work/helm.log" 2>&1 || {
    cat "$work/helm.log" >&2
    return 1
  }
}

# The values of a release with the rules of this file. How fast its store answers is not the matter: this machine may be busy.
with_rules=(--set-string "rules.files.test\.yaml=${rules//,/\\,}"
  --set "settings.store.budget=5s,settings.store.redis.slow_after=5s,settings.http.json_errors=detailed")

pods() { # jsonpath-of-a-pod
  kube get pods --selector "$replicas" --output "jsonpath={range .items[*]}{$1}{'\n'}{end}"
}

# Prints the statuses of requests; 000 is none.
ask() { # key value count
  local address body request
  address=$(kube get service weir --output 'jsonpath={.spec.clusterIP}')
  body='{"domain":"test","descriptors":[{"entries":[{"key":"'$1'","value":"'$2'"}]}]}'
  for ((request = 0; request < $3; request++)); do
    in_cluster curl --silent --max-time 10 --output /dev/null --write-out '%{http_code} ' "http://$address:8080/json" --data "$body" || true
  done
}

expect_answers() { # answers key value what
  local seen
  # A replica is ready before the nodes know it.
  is_reached() { [[ $(ask load a 1) == "200 " ]]; }
  wait_for 30 "the Service leads to a replica" is_reached
  seen=$(ask "$2" "$3" "$(wc -w <<<"$1")")
  [[ ${seen% } == "$1" ]] || fail "$4: $1" "$seen"
}

start_load() {
  local address
  address=$(kube get service weir --output 'jsonpath={.spec.clusterIP}')
  start 1 load python3 scripts/cluster/load.py "$address:8080" '{"domain":"test","descriptors":[{"entries":[{"key":"load","value":"a"}]}]}'
  load=${processes[-1]}
}

# Ends the load, which must have had a decision for each request.
stop_load() { # during-what
  local summary
  kill "$load"
  wait "$load" || true
  summary=$(cat "$work/load.log")
  say "$1: ${summary%%$'\n'*}"
  [[ $summary =~ ^0\ of\ [0-9]{3,} ]] || fail "no request of hundreds to fail during $1" "$summary"
}

a_release_with_default_values_passes_its_test() {
  local helm
  for helm in "${helms[@]}"; do
    deploy "$helm" install
    run_helm "$helm" test weir >/dev/null
    run_helm "$helm" uninstall weir --wait >/dev/null
  done
}

# The API server validates each object, and warns of pod templates that Pod Security would reject.
all_value_files_pass_the_api_server_and_pod_security() {
  local helm file account
  # A dry run does not create those of the pods of `helm test`.
  for account in weir limits; do
    kube create serviceaccount "$account" >/dev/null
    kube label serviceaccount "$account" app.kubernetes.io/managed-by=Helm >/dev/null
    kube annotate serviceaccount "$account" meta.helm.sh/release-{name=weir,namespace="$namespace"} >/dev/null
  done
  python3 scripts/cluster/crds.py tests/chart/crds/*.json | kubectl apply --server-side --filename - >/dev/null
  kubectl wait --for=condition=Established crd --all --timeout=1m >/dev/null
  validate() { # helm argument…
    run_helm "$1" template weir helm/weir --dry-run=server "${@:2}" >"$work/manifests" 2>"$work/warnings" &&
      kube apply --server-side --dry-run=server --validate=strict --filename "$work/manifests" 2>>"$work/warnings" >/dev/null &&
      [[ ! -s $work/warnings ]]
  }
  for helm in "${helms[@]}"; do
    for file in tests/chart/values/*.yaml; do
      validate "$helm" --values "$file" || fail "no error or warning with $helm and $file" "$(cat "$work/warnings")"
    done
    if validate "$helm" --set securityContext.allowPrivilegeEscalation=true; then
      fail "a warning of a privileged container" none
    fi
  done
}

an_upgrade_and_a_rollback_lose_no_request() {
  local helm
  for helm in "${helms[@]}"; do
    deploy "$helm" install "${with_rules[@]}"
    start_load
    deploy "$helm" upgrade "${with_rules[@]}" --set podAnnotations.revision=second
    run_helm "$helm" rollback weir 1 --wait --timeout 5m >/dev/null
    stop_load "upgrade and rollback with $(run_helm "$helm" version --short)"
    run_helm "$helm" uninstall weir --wait >/dev/null
  done
}

a_drain_loses_no_request() {
  local node
  deploy "${helms[-1]}" install "${with_rules[@]}"
  read -r node < <(pods .spec.nodeName)
  start_load
  kubectl drain "$node" --pod-selector "$replicas" --timeout=4m >/dev/null
  kube rollout status deployment/weir --timeout=2m >/dev/null
  stop_load "a drain of $node"
  kubectl uncordon "$node" >/dev/null
  if pods .spec.nodeName | grep -xF "$node"; then fail "no replica on $node" "$(kube get pods --output wide)"; fi
}

an_eviction_leaves_a_replica() {
  local pod answers=()
  deploy "${helms[-1]}" install "${with_rules[@]}"
  for pod in $(pods .metadata.name); do
    answers+=("$(kubectl create --raw "/api/v1/namespaces/$namespace/pods/$pod/eviction" --filename - 2>&1 <<END || true
{ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "$pod", "namespace": "$namespace" } }
END
    )")
  done
  [[ ${#answers[@]} == 2 && ${answers[0]} == *Success* && ${answers[1]} == *"disruption budget"* ]] ||
    fail "the disruption budget to allow the first eviction of two" "${answers[*]}"
}

replicas_are() { [[ $(kube get deployment weir --output 'jsonpath={.spec.replicas}') == "$1" ]]; }

# A Redis that does not exist: no pod has to be ready, and the chart has no other Deployment.
without_pods=(--set "store.kind=redis,store.redis.url=none:6379,image.repository=${image%:*},image.tag=${image##*:}")
autoscaling=(--set "autoscaling.enabled=true,autoscaling.minReplicas=2")

# Nothing measures pods here, so the autoscaler only applies its bounds, and the number in between is set by hand.
a_rollback_keeps_the_number_of_autoscaled_replicas() {
  local helm revision
  local values=("${without_pods[@]}" "${autoscaling[@]}")
  for helm in "${helms[@]}"; do
    run_helm "$helm" install weir helm/weir "${values[@]}" >/dev/null
    wait_for 60 "the autoscaler sets two replicas" replicas_are 2
    kube scale deployment weir --replicas=5 >/dev/null
    run_helm "$helm" upgrade weir helm/weir "${values[@]}" --set podAnnotations.revision=second >/dev/null
    replicas_are 5 || fail "5 replicas after an upgrade with $helm" "$(kube get deployment weir)"
    kube scale deployment weir --replicas=4 >/dev/null
    run_helm "$helm" rollback weir 1 >/dev/null
    replicas_are 4 || fail "4 replicas after a rollback with $helm" "$(kube get deployment weir)"
    for revision in 1 2; do
      if run_helm "$helm" get manifest weir --revision "$revision" | grep '^  replicas:'; then
        fail "no number of replicas in revision $revision of $helm" "the line above"
      fi
    done
    run_helm "$helm" uninstall weir --wait >/dev/null
  done
}

# Helm 4 leaves a number that another program has set last, as docs/install.md says.
autoscaling_begins_with_the_replicas_of_a_scaled_deployment() {
  local helm=${helms[-1]} end
  [[ $(run_helm "$helm" version --short) == v4* ]] || return 0
  run_helm "$helm" install weir helm/weir "${without_pods[@]}" --set replicaCount=3 >/dev/null
  kube scale deployment weir --replicas=4 >/dev/null
  run_helm "$helm" upgrade weir helm/weir "${without_pods[@]}" "${autoscaling[@]}" --server-side=true >/dev/null
  # Longer than the autoscaler's interval.
  end=$((SECONDS + 20))
  while ((SECONDS < end)); do
    replicas_are 4 || fail "4 replicas after autoscaling began" "$(kube get deployment weir)"
    sleep 0.5
  done
}

a_release_moves_to_a_disk() {
  deploy "${helms[-1]}" install
  make_volume
  deploy "${helms[-1]}" upgrade --set store.kind=disk,replicaCount=1
  run_helm "${helms[-1]}" test weir >/dev/null
}

counts_on_a_disk_survive_a_kill() {
  local container process
  has_restarted() { [[ $(pods '.status.containerStatuses[0].restartCount}{.status.containerStatuses[0].ready') == 1true ]]; }
  make_volume
  deploy "${helms[-1]}" install "${with_rules[@]}" --set store.kind=disk,replicaCount=1
  expect_answers "200 200 200" path /a "three of five requests before the kill"
  # Counters are written once a second.
  sleep 3
  container=$(pods '.status.containerStatuses[0].containerID')
  process=$(ctr_on_node 1 tasks list | awk -v id="${container#containerd://}" '$1 == id { print $2 }')
  kill -9 "$process"
  wait_for 120 "the container is restarted and ready" has_restarted
  expect_answers "200 200 429" path /a "two of five requests left after the kill"
}

a_renewed_certificate_is_served() {
  local address start
  make_secret() { # serial-number
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/tls.key" -out "$work/tls.crt" -days 2 -subj /CN=weir \
      -set_serial "$1" -addext "subjectAltName=DNS:weir.$namespace.svc,DNS:weir.$namespace.svc.cluster.local" 2>/dev/null
    kube create secret generic weir-server --from-file=tls.crt="$work/tls.crt" --from-file=tls.key="$work/tls.key" \
      --from-file=ca.crt="$work/tls.crt" --dry-run=client --output yaml | kube apply --filename - >/dev/null
  }
  serves() { # serial-number
    in_cluster openssl s_client -connect "$address:8080" </dev/null 2>/dev/null | openssl x509 -noout -serial | grep -x "serial=$1"
  }
  make_secret 0x11
  deploy "${helms[-1]}" install --set tls.http.enabled=true,tls.http.secret=weir-server,store.kind=memory,replicaCount=1
  address=$(kube get service weir --output 'jsonpath={.spec.clusterIP}')
  # The Service follows the pod.
  wait_for 30 "the certificate of the secret is served" serves 11
  make_secret 0x22
  start=$SECONDS
  wait_for "$reload_seconds" "the renewed certificate is served" serves 22
  say "the renewed certificate is served after $((SECONDS - start)) s"
  run_helm "${helms[-1]}" test weir >/dev/null
}

set_rules() { # text
  kube create configmap team-rules --from-literal=test.yaml="$1" --dry-run=client --output yaml | kube apply --filename - >/dev/null
}
of_config_map=(--set "rules.source=configMap,rules.existingConfigMap=team-rules,store.kind=memory,replicaCount=1")

edited_rules_are_used() {
  local start
  is_allowed() { [[ $(ask path /a 1) == "200 " ]]; }
  set_rules "$rules"
  deploy "${helms[-1]}" install "${of_config_map[@]}"
  expect_answers "200 200 200 200 200 429" path /a "the first rules"
  set_rules "${rules//5\/h/1000\/h}"
  start=$SECONDS
  wait_for "$reload_seconds" "the edited rules are used" is_allowed
  say "the edited rules are used after $((SECONDS - start)) s"
}

wrong_values_and_rules_leave_a_release_as_it_is() {
  local helm=${helms[-1]} value
  set_rules "$rules"
  deploy "$helm" install "${of_config_map[@]}"
  for value in store.kind=memcached replicaCount=two resources.requests.memory=lots settings.log.level=loud; do
    if run_helm "$helm" upgrade weir helm/weir --reuse-values --set "$value" >"$work/helm.log" 2>&1; then
      fail "an error of $value" "$(cat "$work/helm.log")"
    fi
  done
  set_rules "${rules//5\/h/many}"
  has_reported() { kube logs --selector "$replicas" | grep many >/dev/null; }
  wait_for "$reload_seconds" "the log has the wrong rate" has_reported
  kube wait --for=condition=Ready pod --selector "$replicas" --timeout=1s >/dev/null
  expect_answers "200 200 200 200 200 429" path /a "the rules before the wrong ones"
}
