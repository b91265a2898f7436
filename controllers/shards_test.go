// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"hash/fnv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/podtest"
)

// shard is one of count parts of the namespaces.
type shard struct{ index, count int }

// owns reports whether a namespace belongs to the shard. Jump consistent hashing (Lamping and Veach, 2014) moves one of n
// namespaces when the n-th shard is added or removed, and needs no table. FNV has the same result in every process.
func (s shard) owns(namespace string) bool {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(namespace))
	key, owner, next := hash.Sum64(), int64(0), int64(0)
	for next < int64(s.count) {
		owner = next
		key = key*2862933555777941757 + 1
		next = int64(float64(owner+1) * (float64(1<<31) / float64(key>>33+1)))
	}
	return owner == int64(s.index)
}

// ownPods reads pods of the shard's namespaces only.
type ownPods struct {
	client.Reader
	shard shard
}

func (o ownPods) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, pod := object.(*corev1.Pod); pod && !o.shard.owns(key.Namespace) {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	return o.Reader.Get(ctx, key, object, options...)
}

// startShard runs an operator that acts only on pods of the shard's namespaces.
func (f *fixture) startShard(s shard) (stop func()) {
	f.Helper()
	mgr := f.newManager()
	r, err := setup(f.Context(), mgr, testOptions())
	if err != nil {
		f.Fatal(err)
	}
	r.pods.reader.cache, r.pods.reader.teardown = ownPods{r.pods.reader.cache, s}, ownPods{r.pods.reader.teardown, s}
	return f.start(mgr)
}

func TestShardsDivideNamespaces(t *testing.T) {
	const namespaces = 10_000
	for count := 1; count <= 8; count++ {
		owned, moved := make([]int, count), 0
		for i := range namespaces {
			name := fmt.Sprintf("team-%d", i)
			owners := 0
			for index := range count {
				if (shard{index, count}).owns(name) {
					owners++
					owned[index]++
					if !(shard{index, count + 1}).owns(name) {
						moved++
					}
				}
			}
			if owners != 1 {
				t.Fatalf("namespace %s has %d owners among %d shards", name, owners, count)
			}
		}
		for index, got := range owned {
			if even := namespaces / count; got < even*9/10 || got > even*11/10 {
				t.Errorf("shard %d of %d has %d namespaces", index, count, got)
			}
		}
		if even := namespaces / (count + 1); moved > even*11/10 {
			t.Errorf("%d of %d namespaces move from %d to %d shards", moved, namespaces, count, count+1)
		}
	}
}

// Shards overlap when a second one is added, and nobody owns any namespace for a while when it is removed.
func TestPodsEndOnceWhileShardsMove(t *testing.T) {
	newKruise(t).Install(t)
	all, first, second := shard{0, 1}, shard{0, 2}, shard{1, 2}
	var teams []*fixture
	for members := (map[bool]int{}); members[true] < 2 || members[false] < 2; {
		team := newFixture(t)
		team.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect))
		teams = append(teams, team)
		members[first.owns(team.namespace)]++
	}
	var pods []*corev1.Pod
	end := func(wave string, team *fixture) {
		for i := range 5 {
			pods = append(pods, team.newPod(fmt.Sprintf("%s-%d", wave, i), podtest.MainDone))
		}
	}
	untilActed := func(each int, teams ...*fixture) {
		for _, team := range teams {
			team.untilCRRs(each)
		}
	}
	owner := teams[0]
	stopAll := owner.startShard(all)
	for _, team := range teams {
		end("one", team)
	}
	untilActed(5, teams...)

	stopFirst := owner.startShard(first)
	for i, team := range teams {
		if i == len(teams)/2 {
			stopAll()
		}
		end("overlap", team)
	}
	var ofFirst, ofSecond []*fixture
	for _, team := range teams {
		if first.owns(team.namespace) {
			ofFirst = append(ofFirst, team)
		} else {
			ofSecond = append(ofSecond, team)
		}
	}
	untilActed(10, ofFirst...)
	stopSecond := owner.startShard(second)
	untilActed(10, ofSecond...)
	for _, team := range teams {
		end("two", team)
	}
	untilActed(15, teams...)

	for i, team := range teams {
		if i == 1 {
			stopFirst()
			stopSecond()
		}
		end("gap", team)
	}
	stopAll = owner.startShard(all)
	untilActed(20, teams...)

	for i, team := range teams {
		requested, crrs := map[string]bool{}, team.crrs()
		for _, crr := range crrs {
			requested[crr.Spec.PodName] = true
		}
		if len(requested) != 20 || len(crrs) != 20 {
			t.Errorf("namespace %d: %d requests for %d pods, want 20 for 20", i, len(crrs), len(requested))
		}
	}
	// An operator that stops may lose an event, but none sends a second one: each attempt was started once.
	stopAll()
	for _, pod := range pods {
		team := &fixture{Client: owner.Client, T: t, namespace: pod.Namespace}
		if got, err := team.eventsOn(t.Context(), pod); err != nil || len(got) > 1 || len(got) == 1 && got[0] != "Normal Terminating SidecarTerminationPolicy/mesh" {
			t.Errorf("%s/%s: events %q, error %v", pod.Namespace, pod.Name, got, err)
		}
	}
	owner.nothingWentWrong()
}
