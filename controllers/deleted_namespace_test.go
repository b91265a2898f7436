// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
)

func TestPodIsRelabelled(t *testing.T) {
	newKruise(t).Install(t)
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect), func(spec *v1alpha1.PolicySpec) {
		spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl"}}
	})
	pod := f.newPod("job-1", podtest.MainDone)
	f.untilCounts(policy, counts{matched: 1, terminating: 1})
	relabel := func(team string) {
		f.reload(pod)
		pod.Labels = map[string]string{"team": team}
		f.update(pod)
	}
	relabel("web")
	f.untilCounts(policy, counts{})
	relabel("etl")
	f.untilCounts(policy, counts{matched: 1, terminating: 1})
	f.untilCRRs(1)
	f.untouched(pod)
	f.change(pod, podtest.SidecarDone, podtest.Succeeded)
	f.untilCounts(policy, counts{terminated: 1})
	f.nothingWentWrong()
}

func TestNamespaceIsDeletedWhileOperatorRuns(t *testing.T) {
	newKruise(t).Install(t)
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect), withPrePull)
	pod := f.newPod("job-1")
	f.untilCounts(policy, counts{matched: 1, waiting: 1})
	f.remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}})
	f.change(pod, podtest.MainDone)
	f.until(pod, "the next mode follows, which creates nothing", imageSwapped)
	// The namespace's objects are deleted in any order. The operator continues with other namespaces.
	f.remove(policy)
	f.remove(pod)
	f.empty()
	elsewhere := newFixture(t)
	next := elsewhere.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	elsewhere.until(elsewhere.newPod("job-1", podtest.MainDone), "its phase is written", phaseWritten)
	elsewhere.untilCounts(next, counts{matched: 1, terminating: 1})
	for line := range strings.Lines(operatorLog.take()) {
		if strings.Contains(line, `"level":"error"`) {
			t.Error(line)
		}
	}
}
