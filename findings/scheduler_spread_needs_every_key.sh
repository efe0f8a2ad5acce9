#!/usr/bin/env bash
# Behavior: the Kubernetes scheduler ignores a node that lacks the key of one of a pod's `topologySpreadConstraints` with
#   `ScheduleAnyway`: it has score 0. Where no node has a zone label, all have 0, and the constraint for host names, which
#   alone would spread the replicas, is switched off by the one for zones beside it.
# Version: Kubernetes 1.34.2 (Go module k8s.io/kubernetes), the plugin of the scheduler with a made snapshot of two nodes.
# Source: pkg/scheduler/framework/plugins/podtopologyspread/scoring.go, `initPreScoreState`: `requireAllTopologies`, whose
#   comment says so of the nodes. The page on topology spread constraints says it of nodes without "any" of the keys.
# Why a guess goes wrong: constraints look like separate wishes, and `ScheduleAnyway` like one that can only help. The
#   scheduler's own defaults are also hostname and zone, and do spread over nodes without zones: for them the plugin
#   makes an exception, which constraints of the pod do not get.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export GOFLAGS="-modcacherw -mod=mod" GOMODCACHE=$work/modules
version=1.34.2
cd "$work"
go mod init example >/dev/null 2>&1
go mod edit "-require=k8s.io/kubernetes@v$version"
# The module takes its parts from its own repository; as modules they have the version 0 in place of 1.
go mod download -json "k8s.io/kubernetes@v$version" >module.json
mod=$(python3 -c 'import json; print(json.load(open("module.json"))["GoMod"])')
while read -r part; do
  go mod edit "-replace=$part=$part@v0${version#1}"
done < <(sed -n 's|^\t\(k8s.io/[a-z-]*\) => ./staging/.*|\1|p' "$mod")
cat >main.go <<'G'
package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// handle is all that the plugin asks the scheduler for where pods have constraints of their own.
type handle struct {
	framework.Handle
	snapshot *cache.Snapshot
}

func (h handle) SnapshotSharedLister() framework.SharedLister { return h.snapshot }
func (h handle) Parallelizer() parallelize.Parallelizer       { return parallelize.NewParallelizer(1) }

var labels = map[string]string{"app": "example"}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// scores returns those of two nodes for a further pod, where the first node has three of its pods and the second none.
func scores(zone bool, keys ...string) [2]int64 {
	var nodes []*v1.Node
	for _, name := range []string{"a", "b"} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}
		if zone {
			node.Labels[v1.LabelTopologyZone] = "one"
		}
		nodes = append(nodes, node)
	}
	var pods []*v1.Pod
	for _, name := range []string{"1", "2", "3"} {
		meta := metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels}
		pods = append(pods, &v1.Pod{ObjectMeta: meta, Spec: v1.PodSpec{NodeName: "a"}})
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "4", Namespace: "default", Labels: labels}}
	for _, key := range keys {
		pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew:           1,
			TopologyKey:       key,
			WhenUnsatisfiable: v1.ScheduleAnyway,
			LabelSelector:     &metav1.LabelSelector{MatchLabels: labels},
		})
	}
	ctx := context.Background()
	snapshot := cache.NewSnapshot(pods, nodes)
	args := &config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting}
	made, err := podtopologyspread.New(ctx, args, handle{snapshot: snapshot}, feature.Features{})
	check(err)
	plugin := made.(*podtopologyspread.PodTopologySpread)
	infos, err := snapshot.NodeInfos().List()
	check(err)
	state := framework.NewCycleState()
	check(plugin.PreScore(ctx, state, pod, infos).AsError())
	list := framework.NodeScoreList{}
	for _, name := range []string{"a", "b"} {
		info, err := snapshot.NodeInfos().Get(name)
		check(err)
		score, status := plugin.Score(ctx, state, pod, info)
		check(status.AsError())
		list = append(list, framework.NodeScore{Name: name, Score: score})
	}
	check(plugin.NormalizeScore(ctx, state, pod, list).AsError())
	return [2]int64{list[0].Score, list[1].Score}
}

func main() {
	metrics.Register()
	fmt.Println("no zone labels, hostname alone:", scores(false, v1.LabelHostname))
	fmt.Println("no zone labels, hostname and zone:", scores(false, v1.LabelHostname, v1.LabelTopologyZone))
	fmt.Println("one zone, hostname and zone:", scores(true, v1.LabelHostname, v1.LabelTopologyZone))
}
G
printf 'k8s.io/kubernetes v%s; scores of the node with three of the pods, and of the one with none\n' "$version"
# Apart from the build, which is long and gives way to others: a download that does fails at its time-out.
{ go list -deps . && nice -n 19 go build -trimpath -o example .; } >go.log 2>&1 || { tail -n 20 go.log; exit 1; }
./example | tee out
cmp -s out - <<'X' || { echo "the behavior has changed"; exit 1; }
no zone labels, hostname alone: [0 100]
no zone labels, hostname and zone: [0 0]
one zone, hostname and zone: [42 100]
X
