// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/podtest"
)

func TestPodIsUnchangedSince(t *testing.T) {
	probed := func(pod *corev1.Pod) { pod.ResourceVersion = "18"; pod.Status.ContainerStatuses[1].Ready = true }
	for name, tc := range map[string]struct {
		next              *corev1.Pod
		quiet, containers time.Duration // after noon; the second reconcile is a minute later
	}{
		"the same version":                 {podtest.New(podtest.MainDone), 0, 0},
		"another version":                  {podtest.New(podtest.MainDone, probed), time.Minute, 0},
		"a container that ended":           {podtest.New(podtest.MainDone, podtest.SidecarDone, probed), time.Minute, time.Minute},
		"a container that restarted":       {podtest.New(podtest.MainDone, probed, func(p *corev1.Pod) { p.Status.ContainerStatuses[1].RestartCount++ }), time.Minute, time.Minute},
		"another pod of the same name":     {podtest.New(podtest.MainDone, probed, func(p *corev1.Pod) { p.UID = "5b2c" }), time.Minute, time.Minute},
		"a pod without an ended container": {podtest.New(), time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			states := newPodStates(newReporter(nil, nil, nil), nil)
			states.unchangedSince(podtest.New(podtest.MainDone), podtest.Noon)
			quiet, containers := states.unchangedSince(tc.next, podtest.Noon.Add(time.Minute))
			if quiet.Sub(podtest.Noon) != tc.quiet || containers.Sub(podtest.Noon) != tc.containers {
				t.Errorf("unchanged since %s and its containers since %s after noon, want %s and %s", quiet.Sub(podtest.Noon), containers.Sub(podtest.Noon), tc.quiet, tc.containers)
			}
		})
	}
}

func TestForgottenPodIsUnchangedFromNowOn(t *testing.T) {
	states := newPodStates(newReporter(nil, nil, nil), nil)
	states.unchangedSince(podtest.New(podtest.MainDone), podtest.Noon)
	states.forget(keyOf(podtest.New()))
	if quiet, containers := states.unchangedSince(podtest.New(podtest.MainDone), podtest.Noon.Add(time.Hour)); !quiet.Equal(podtest.Noon.Add(time.Hour)) || !containers.Equal(quiet) {
		t.Errorf("unchanged since %s, containers since %s", quiet, containers)
	}
}
