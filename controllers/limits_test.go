// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
)

// long is a name of 253 characters with parts that a domain name may have.
func long(prefix string) string {
	const length = 253
	name := prefix
	for len(name) < length {
		name += strings.Repeat("x", min(60, length-len(name)))
		if len(name)+1 < length {
			name += "."
		}
	}
	return name
}

// inLongNamespace continues in a new namespace whose name has 63 characters.
func (f *fixture) inLongNamespace() {
	f.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace + strings.Repeat("n", 63-len(f.namespace))}}
	f.create(namespace)
	f.namespace = namespace.Name
}

func TestManyPoliciesOnOnePod(t *testing.T) {
	b := newBench(t, nil)
	const policies = 200
	var all []*v1alpha1.SidecarTerminationPolicy
	for i := range policies {
		all = append(all, b.newPolicy(fmt.Sprintf("mesh-%03d", i), mode(v1alpha1.ModePodPhase, ""), func(spec *v1alpha1.PolicySpec) {
			spec.Priority, spec.DrainSeconds = int32(i), ptr.To(int32(policies-1-i))
		}))
	}
	pod := b.newPod("job-1")
	b.reconcile(pod)
	for _, number := range []int{0, policies - 1} {
		policy := all[number]
		b.summarise(policy)
		b.reload(policy)
		loses := number < policies-1
		if got := meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ConditionOverridden); got != loses || policy.Status.MatchedPods != 1 {
			t.Errorf("%s: overridden %t, status %+v", policy.Name, got, policy.Status)
		}
	}
	b.wrote("PATCH pods/status", "PUT sidecarterminationpolicies/status", "PUT sidecarterminationpolicies/status")
	if b.change(pod, podtest.MainDone); !succeeded(pod) {
		t.Errorf("pod is %q", outcomeOf(pod))
	}
}

// Every name has the maximum length, and the policy names the maximum number of sidecars.
func TestLongestNamesAndMostSidecars(t *testing.T) {
	newKruise(t).Install(t)
	for m, exitCodePolicy := range map[v1alpha1.Mode]v1alpha1.ExitCodePolicy{
		v1alpha1.ModeCRR: v1alpha1.ExitCodePolicyRespect, v1alpha1.ModeImage: "", v1alpha1.ModePodPhase: "",
	} {
		t.Run(string(m), func(t *testing.T) {
			f := newFixture(t)
			f.inLongNamespace()
			f.startOperator(testOptions())
			var sidecars []string
			for i := range 32 {
				sidecars = append(sidecars, fmt.Sprintf("sidecar-%02d-%s", i, strings.Repeat("c", 63-len("sidecar-00-"))))
			}
			policy := f.newPolicy(long("mesh-"), mode(m, exitCodePolicy), func(spec *v1alpha1.PolicySpec) {
				spec.Sidecars = nil
				for _, name := range sidecars {
					spec.Sidecars = append(spec.Sidecars, v1alpha1.Sidecar{Name: name})
				}
			})
			pod := f.newPod(long("job-"), func(p *corev1.Pod) {
				p.Spec.Containers, p.Status.ContainerStatuses = p.Spec.Containers[:1], p.Status.ContainerStatuses[:1]
				for _, name := range sidecars {
					p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: "proxy:v1"})
					p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, podtest.Running(name))
				}
			}, podtest.MainDone, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1) })
			switch m {
			case v1alpha1.ModeCRR:
				f.untilOneCRR()
				if got := len(f.crrs()[0].Spec.Containers); got != len(sidecars) {
					t.Errorf("the request names %d containers", got)
				}
			case v1alpha1.ModeImage:
				f.until(pod, "its images are swapped", imageSwapped)
				if got := len(slices.DeleteFunc(images(pod), func(image string) bool { return image != quickExit })); got != len(sidecars) {
					t.Errorf("%d images are swapped", got)
				}
			default:
				f.until(pod, "its phase is Succeeded", succeeded)
			}
			f.change(pod, func(p *corev1.Pod) {
				for i := range p.Status.ContainerStatuses[1:] {
					p.Status.ContainerStatuses[i+1] = podtest.Ended(sidecars[i], 0)
					p.Status.ContainerStatuses[i+1].RestartCount = 1
				}
			}, podtest.Succeeded)
			f.untilEvent(pod)
			status := f.untilCounts(policy, counts{terminated: 1})
			if len(status.RecentTerminations) != 1 || status.RecentTerminations[0].Pod != pod.Name {
				t.Errorf("recent is %+v", status.RecentTerminations)
			}
			f.nothingWentWrong()
		})
	}
}

func TestLargestStatusIsAccepted(t *testing.T) {
	f := newFixture(t)
	policy := f.newPolicy(long("mesh-"))
	for range 10 {
		policy.Status.RecentTerminations = append(policy.Status.RecentTerminations, v1alpha1.RecentTermination{
			Namespace: strings.Repeat("n", 63), Pod: long("job-"), Mode: v1alpha1.ModePodPhase,
			Outcome: v1alpha1.OutcomeWouldTerminate, DurationMilliseconds: 1<<63 - 1, Time: new(metav1.NewTime(podtest.Noon)),
		})
	}
	for _, kind := range []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionOverridden, v1alpha1.ConditionDegraded, v1alpha1.ConditionStalled, v1alpha1.ConditionPrePulled,
	} {
		policy.Status.Conditions = append(policy.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: string(v1alpha1.ReasonNoMainContainer), ObservedGeneration: 1<<63 - 1,
			LastTransitionTime: metav1.NewTime(podtest.Noon), Message: strings.Repeat("\U0001F600", 1024),
		})
	}
	policy.Status.Mode, policy.Status.Sidecars = strings.Repeat("M", 64), strings.Repeat("s", 256)
	policy.Status.MatchedPods, policy.Status.TerminatedPods = 1<<31-1, 1<<63-1
	if err := f.Status().Update(t.Context(), policy); err != nil {
		t.Error(err)
	}
}
