// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/prepull/pulljob"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// story creates and changes objects of every kind that the operator watches: a pod that waits for OpenKruise, one that waits for its
// node, and one that waits for a label of its namespace.
type story struct {
	*fixture
	late   *lateEvent // nil for none
	actors node

	kruiseThere   bool
	mesh, edge    *v1alpha1.SidecarTerminationPolicy
	clusterPolicy *v1alpha1.ClusterSidecarTerminationPolicy
}

// newStory begins a story in the fixture, whose operator runs.
func newStory(f *fixture, late *lateEvent) *story {
	return &story{fixture: f, late: late, actors: node{server: f.Client, now: time.Now, mains: []int32{0}, stops: map[string]int{}}}
}

// tell runs the story with the late event and returns the story at its end.
func tell(t *testing.T, k *testenv.Kruise, late *lateEvent) *story {
	t.Helper()
	f := newFixture(t)
	f.swept.splits = true
	f.startOperator(testOptions())
	f.swept.begin(late, f.namespace, crr.DefinitionName, crr.WebhookConfigurationName, pulljob.DefinitionName)
	s := newStory(f, late)
	s.happens(k)
	if s.waits() {
		s.rests()
		close(late.over)
		s.late = nil
		s.untilEnded()
	}
	s.wentAsItShould()
	s.nothingWentWrong()
	return s
}

// happens makes the changes of the story in order.
func (s *story) happens(k *testenv.Kruise) {
	s.Helper()
	s.policies()
	s.pods()
	k.Install(s.T)
	s.kruiseThere = true
	s.untilEnded()
}

func (s *story) policies() {
	s.Helper()
	s.mesh = s.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect), func(spec *v1alpha1.PolicySpec) {
		spec.Fallback = v1alpha1.FallbackDisabled
	})
	s.edge = s.newPolicy("edge", withPrePull, func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "agent" })
	s.clusterPolicy = &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	s.clusterPolicy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "logger"}}
	s.clusterPolicy.Spec.Mode = v1alpha1.ModePodPhase
	s.clusterPolicy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"batch": "on", corev1.LabelMetadataName: s.namespace}}
	s.create(s.clusterPolicy)
	for _, policy := range []client.Object{s.mesh, s.edge, s.clusterPolicy} {
		s.follows(policy, counts{})
	}
}

func (s *story) pods() {
	s.Helper()
	named := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[1].Name, p.Status.ContainerStatuses[1] = name, podtest.Running(name)
		}
	}
	s.newPod("by-mesh")
	s.follows(s.mesh, counts{matched: 1, stuck: 1})
	late := s.namespace + "-late"
	s.newPod("by-edge", named("agent"), func(p *corev1.Pod) { p.Spec.NodeName = late })
	s.follows(s.edge, counts{matched: 1, terminating: 1})
	s.createNode(late, virtualKubelet)
	s.follows(s.edge, counts{terminated: 1})
	s.newPod("by-cluster-policy", named("logger"))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	s.reload(namespace)
	namespace.Labels["batch"] = "on"
	s.update(namespace)
	s.follows(s.clusterPolicy, counts{terminated: 1})
}

// untilEnded waits until every pod is counted and every image is pulled.
func (s *story) untilEnded() {
	s.Helper()
	for _, policy := range []client.Object{s.mesh, s.edge, s.clusterPolicy} {
		s.follows(policy, counts{terminated: 1})
	}
	s.eventually("images are pulled", func(ctx context.Context) error {
		status, err := s.statusOf(ctx, s.edge)
		if got := prePulled(status); err == nil && !strings.HasPrefix(got, "True PrePulled") {
			err = fmt.Errorf("the policy says %q", got)
		}
		return err
	})
}

// waits reports whether the event is being delayed.
func (s *story) waits() bool { return s.late != nil && !s.late.lost && s.late.wasMet() }

// follows simulates the nodes until the policy has the counts. It does not wait for the effects of a delayed event.
func (s *story) follows(policy client.Object, want counts) {
	s.Helper()
	s.eventually(fmt.Sprintf("policy %s counts %+v", policy.GetName(), want), func(ctx context.Context) error {
		status, err := s.statusOf(ctx, policy)
		if err != nil {
			return err
		}
		got := counts{int(status.MatchedPods), int(status.WaitingPods), int(status.TerminatingPods), int(status.StuckPods), int(status.TerminatedPods)}
		if got != want || status.ObservedGeneration != policy.GetGeneration() {
			return fmt.Errorf("counts are %+v at generation %d of %d", got, status.ObservedGeneration, policy.GetGeneration())
		}
		return nil
	})
}

func (s *story) eventually(what string, check func(context.Context) error) {
	s.Helper()
	testenv.Eventually(s.T, what, func(ctx context.Context) error {
		if err := s.play(ctx); err != nil {
			return err
		}
		if s.waits() {
			return nil
		}
		return check(ctx)
	})
}

// rests waits until the operator is idle: it has reported on a policy that was created last.
func (s *story) rests() {
	s.Helper()
	if s.late.watch == "sidecarterminationpolicies" {
		return
	}
	none := func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "none" }
	s.untilCounts(s.newPolicy("last", none), counts{})
}

func (s *story) statusOf(ctx context.Context, policy client.Object) (v1alpha1.PolicyStatus, error) {
	err := s.Get(ctx, client.ObjectKeyFromObject(policy), policy)
	if clusterPolicy, ok := policy.(*v1alpha1.ClusterSidecarTerminationPolicy); ok {
		return clusterPolicy.Status, err
	}
	return policy.(*v1alpha1.SidecarTerminationPolicy).Status, err
}

// play simulates kubelets and OpenKruise.
func (s *story) play(ctx context.Context) error {
	for {
		var pods corev1.PodList
		if err := s.List(ctx, &pods, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		v := version{pods: pods.Items}
		if s.kruiseThere {
			v.requests = s.crrs()
		}
		written, err := s.actors.step(ctx, v)
		switch {
		case apierrors.IsConflict(err):
			continue
		case err != nil:
			return err
		case written != "":
			continue
		case s.kruiseThere:
			return s.pull(ctx)
		}
		return nil
	}
}

// pull simulates the pull of every image on the only node.
func (s *story) pull(ctx context.Context) error {
	for _, job := range s.pullJobs() {
		if job.Status.StartTime != nil {
			continue
		}
		now := metav1.Now()
		job.Status = kruise.ImagePullJobStatus{StartTime: &now, Desired: 1, Succeeded: 1}
		if err := s.Status().Update(ctx, &job); err != nil {
			return err
		}
	}
	return nil
}

// wentAsItShould fails if the operator wrote anything twice.
func (s *story) wentAsItShould() {
	s.Helper()
	if diff := cmp.Diff(map[string]int{"proxy": 1, "agent": 1, "logger": 1}, s.actors.stops); diff != "" {
		s.Errorf("how often containers were stopped (-want +got):\n%s", diff)
	}
	if got := len(s.crrs()); got != 1 {
		s.Errorf("%d requests", got)
	}
	if diff := cmp.Diff([]string{quickExit}, s.images()); diff != "" {
		s.Errorf("images that are pulled (-want +got):\n%s", diff)
	}
}

// Each event of each of the operator's watches is delayed once, and lost once with its connection. The outcome is always the same.
func TestFaultAnyWatchEventIsLate(t *testing.T) {
	k := newKruise(t)
	var events map[string]int
	t.Run("none is", func(t *testing.T) { events = tell(t, k, nil).swept.events() })
	watches := slices.Sorted(maps.Keys(events))
	byResource := map[string]int{}
	for _, watch := range watches {
		resource, _, _ := strings.Cut(watch, " ")
		byResource[resource]++
	}
	want := map[string]int{
		"clustersidecarterminationpolicies": 1, "containerrecreaterequests": 1, "customresourcedefinitions": 2, "imagepulljobs": 1,
		"mutatingwebhookconfigurations": 1, "namespaces": 1, "nodes": 1, "pods": 2, "sidecarterminationpolicies": 1,
	}
	if diff := cmp.Diff(want, byResource); diff != "" {
		t.Fatalf("watches that brought events (-want +got):\n%s", diff)
	}
	tried, met := 0, 0
	for i, watch := range watches {
		// Status writes may be combined, so the number of events can differ.
		certain := (events[watch] + 1) / 2
		for number := 1; number <= events[watch]; number++ {
			for _, lost := range []bool{false, true} {
				if !every && (number != 1+i%certain || lost != (i%2 == 0)) {
					continue
				}
				how := "late"
				if lost {
					how = "lost with the connection"
				}
				t.Run(fmt.Sprintf("event %d of %s is %s", number, watch, how), func(t *testing.T) {
					late := newLateEvent(watch, number, lost)
					tell(t, k, late)
					tried++
					switch {
					case late.wasMet():
						met++
					case number <= certain:
						t.Error("there was no such event")
					}
				})
			}
		}
	}
	t.Logf("%d events of %d watches; %d runs, %d with the late event", total(events), len(watches), tried, met)
}

func total(events map[string]int) int {
	sum := 0
	for _, n := range events {
		sum += n
	}
	return sum
}
