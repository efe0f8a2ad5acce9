# Sourced by scripts/test-cluster: a cluster of two nodes without Docker or systemd, as root.
#
# Each node is a network namespace with a containerd, a kubelet and a kube-proxy; that of node 1 has the control plane
# too. All processes see the file system and the cgroups of this machine. Nothing listens outside the namespaces, and
# nothing in them reaches another network. NetworkPolicies are accepted and not enforced.
#
#   10.201.0.N     node N              10.202.N.0/24  its pods
#   10.96.0.0/16   Services            10.201.0.1:53  DNS
#
# shellcheck shell=bash disable=SC2154 # $cluster is a name that is free, $work an empty directory

kubernetes=$PWD/.tools/kubernetes/current
api_server=https://10.201.0.1:6443
# Kubelets set them.
kernel_settings=(vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys
  kernel.keys.root_maxbytes)
processes=() kubelets=()

# Not `ip netns exec`: it also hides mounts and cgroups.
on_node() { # number command…
  nsenter --net="/run/netns/$cluster-$1" "${@:2}"
}

start() { # node name command…
  # Directly, so that the id is that of the program.
  nsenter --net="/run/netns/$cluster-$1" "${@:3}" >"$work/$2.log" 2>&1 </dev/null &
  processes+=($!)
}

ctr_on_node() { # number argument…
  ctr --address "$work/$1/containerd.sock" --namespace k8s.io "${@:2}"
}

# Prints what forbids a cluster on this machine.
why_not() {
  mkdir "$work/probe" "$work/probe"/{lower,upper,work,mount}
  if [[ $(id -u) != 0 ]]; then
    echo "this needs Docker and kind, or root"
  elif ! grep -q '^ID=debian' /etc/os-release; then
    echo "this needs Docker and kind, or Debian"
  elif ! go version 2>/dev/null | grep -qE 'go1\.(2[1-9]|[3-9][0-9])'; then
    echo "this needs Docker and kind, or Go 1.21 or later: https://go.dev/dl"
  elif ! unshare --net --mount true 2>/dev/null; then
    echo "this machine allows no namespaces"
  elif [[ ! -w /sys/fs/cgroup ]]; then
    echo "this machine allows no cgroups"
  elif ! (cd "$work/probe" && unshare --mount mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay mount); then
    echo "$work allows no overlays: set TMPDIR to a directory on a disk"
  fi
}

make_networks() {
  local node
  for node in 1 2; do
    ip netns add "$cluster-$node"
    on_node "$node" ip link set lo up
  done
  ip link add eth0 netns "$cluster-1" type veth peer name eth0 netns "$cluster-2"
  # Without it, answers of a pod to another one on its node skip the translation of the Service's address.
  modprobe br_netfilter 2>/dev/null || true
  for node in 1 2; do
    on_node "$node" ip address add "10.201.0.$node/24" dev eth0
    on_node "$node" ip link set eth0 up
    on_node "$node" ip route add default via "10.201.0.$((3 - node))"
    on_node "$node" sysctl -q -w net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
  done
}

certificate() { # name subject names
  openssl req -newkey rsa:2048 -nodes -keyout "$work/$1.key" -subj "$2" -out "$work/$1.csr" 2>/dev/null
  openssl x509 -req -in "$work/$1.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days 2 \
    -out "$work/$1.crt" -extfile <(printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=%s\n' "$3") 2>/dev/null
}

# Writes a certificate, and the kubeconfig with which a component is known by it.
component() { # name subject
  certificate "$1" "$2" "DNS:$1${3:+,$3}"
  cat >"$work/$1.kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{ name: weir, cluster: { server: "$api_server", certificate-authority: $work/ca.crt } }]
users: [{ name: $1, user: { client-certificate: $work/$1.crt, client-key: $work/$1.key } }]
contexts: [{ name: weir, context: { cluster: weir, user: $1 } }]
current-context: weir
END
}

make_certificates() {
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/ca.key" -out "$work/ca.crt" -days 2 -subj /CN=weir-test 2>/dev/null
  openssl genrsa -out "$work/accounts.key" 2048 2>/dev/null
  certificate api-server /CN=kube-apiserver "DNS:kubernetes.default.svc,IP:10.201.0.1,IP:10.96.0.1"
  component admin /O=system:masters/CN=admin
  component controller-manager /CN=system:kube-controller-manager
  component scheduler /CN=system:kube-scheduler
  component proxy /CN=system:kube-proxy
  component kubelet-1 /O=system:nodes/CN=system:node:node-1 IP:10.201.0.1
  component kubelet-2 /O=system:nodes/CN=system:node:node-2 IP:10.201.0.2
}

start_control_plane() {
  start 1 etcd etcd --data-dir "$work/etcd" --unsafe-no-fsync
  start 1 kube-apiserver "$kubernetes/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
    --advertise-address=10.201.0.1 --service-cluster-ip-range=10.96.0.0/16,fd00:96::/112 --allow-privileged \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --client-ca-file="$work/ca.crt" --tls-cert-file="$work/api-server.crt" --tls-private-key-file="$work/api-server.key" \
    --kubelet-client-certificate="$work/admin.crt" --kubelet-client-key="$work/admin.key" \
    --kubelet-certificate-authority="$work/ca.crt" --kubelet-preferred-address-types=InternalIP \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$work/accounts.key" \
    --service-account-signing-key-file="$work/accounts.key"
  wait_for 120 "the API server is ready" kubectl get --raw /readyz
  start 1 kube-controller-manager "$kubernetes/kube-controller-manager" --kubeconfig="$work/controller-manager.kubeconfig" \
    --service-account-private-key-file="$work/accounts.key" --root-ca-file="$work/ca.crt" \
    --use-service-account-credentials --leader-elect=false
  start 1 kube-scheduler "$kubernetes/kube-scheduler" --kubeconfig="$work/scheduler.kubeconfig" --leader-elect=false
  start 1 dns python3 "$PWD/scripts/cluster/dns.py" 10.201.0.1 "$api_server" "$work/ca.crt" "$work/admin.crt" "$work/admin.key"
}

start_node() { # number
  local node=$1 directory=$work/$1 tree archive
  local trees=(/sys/fs/cgroup)
  # Version 1 has a tree for each controller.
  [[ -e /sys/fs/cgroup/cgroup.controllers ]] || trees=(/sys/fs/cgroup/*/)
  for tree in "${trees[@]}"; do mkdir -p "$tree/$cluster-$node"; done
  mkdir -p "$directory/network"
  cat >"$directory/network/10-bridge.conflist" <<END
{ "cniVersion": "1.0.0", "name": "$cluster-$node", "plugins": [{
  "type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
  "ipam": { "type": "host-local", "dataDir": "$directory/addresses",
    "ranges": [[{ "subnet": "10.202.$node.0/24" }]], "routes": [{ "dst": "0.0.0.0/0" }] } }] }
END
  cat >"$directory/containerd.toml" <<END
version = 2
root = "$directory/containerd"
state = "$directory/state"
[grpc]
  address = "$directory/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/weir-pause:1"
  netns_mounts_under_state_dir = true
  # Where CAP_SYS_RESOURCE is missing, no sandbox starts otherwise.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$directory/network"
END
  start "$node" "containerd-$node" containerd --config "$directory/containerd.toml"
  wait_for 60 "containerd of node $node answers" ctr_on_node "$node" version
  for archive in "$work"/images/*.tar; do
    ctr_on_node "$node" images import "$archive" >/dev/null
  done
  cat >"$directory/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 10.201.0.$node
authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: $work/ca.crt } }
authorization: { mode: Webhook }
tlsCertFile: $work/kubelet-$node.crt
tlsPrivateKeyFile: $work/kubelet-$node.key
containerRuntimeEndpoint: unix://$directory/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$cluster-$node
failCgroupV1: false
failSwapOn: false
clusterDNS: [10.201.0.1]
clusterDomain: cluster.local
resolvConf: ""
podLogsDir: $directory/logs
volumePluginDir: $directory/plugins
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: { memory.available: 200Mi, nodefs.available: 1%, imagefs.available: 1% }
END
  start "$node" "kubelet-$node" "$kubernetes/kubelet" --config="$directory/kubelet.yaml" \
    --kubeconfig="$work/kubelet-$node.kubeconfig" --hostname-override="node-$node" --node-ip="10.201.0.$node" \
    --root-dir="$directory/kubelet" --cert-dir="$directory"
  kubelets+=("${processes[-1]}")
  cat >"$directory/proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: { kubeconfig: $work/proxy.kubeconfig }
mode: nftables
hostnameOverride: node-$node
clusterCIDR: 10.202.0.0/16
# These settings are the machine's.
conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s }
END
  start "$node" "kube-proxy-$node" "$kubernetes/kube-proxy" --config="$directory/proxy.yaml"
}

start_cluster() {
  mkdir "$work/images"
  scripts/cluster/build-images "$image" "$work/images"
  sysctl "${kernel_settings[@]}" >"$work/kernel-settings"
  make_networks
  make_certificates
  start_control_plane
  start_node 1
  start_node 2
  wait_for 120 "the nodes are registered" kubectl get node node-1 node-2
  kubectl wait --for=condition=Ready node --all --timeout=2m >/dev/null
}

# Makes a volume on node 1, for the claim that comes next.
make_volume() {
  mkdir -p "$work/volumes/$namespace"
  kubectl apply --filename - >/dev/null <<END
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: local, annotations: { storageclass.kubernetes.io/is-default-class: "true" } }
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: { name: $namespace }
spec:
  accessModes: [ReadWriteOnce]
  capacity: { storage: 2Gi }
  storageClassName: local
  local: { path: $work/volumes/$namespace }
  nodeAffinity:
    required:
      nodeSelectorTerms: [{ matchExpressions: [{ key: kubernetes.io/hostname, operator: In, values: [node-1] }] }]
END
}

# Ends and removes what this file started, and nothing else: by process, name and directory.
stop_cluster() {
  local node task tries
  # First, since they would start containers again.
  if ((${#kubelets[@]})); then kill "${kubelets[@]}" 2>/dev/null || true; fi
  for node in 1 2; do
    [[ -S $work/$node/containerd.sock ]] || continue
    for task in $(ctr_on_node "$node" tasks list --quiet); do
      ctr_on_node "$node" tasks delete --force "$task" >/dev/null 2>&1 || true
      rm -f /var/lib/cni/results/*-"$task"-*
    done
  done
  if ((${#processes[@]})); then
    # They have nothing to keep, and an API server without etcd takes 20 s to end.
    kill -KILL "${processes[@]}" 2>/dev/null || true
    wait "${processes[@]}" 2>/dev/null || true
  fi
  awk -v directory="$work/" 'index($2, directory) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount --lazy
  for node in 1 2; do
    ip netns delete "$cluster-$node" 2>/dev/null || true
  done
  for ((tries = 0; tries < 10; tries++)); do
    find /sys/fs/cgroup -depth -type d -path "*/$cluster-[12]*" -exec rmdir {} + 2>/dev/null && break
    sleep 0.5
  done
  find /var/log/containers -lname "$work/*" -delete 2>/dev/null || true
  if [[ -f $work/kernel-settings ]]; then sysctl -q -p "$work/kernel-settings" || true; fi
}
