// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestAPodIsSeenAsItIsSinceItChanged(t *testing.T) {
	probed := func(pod *corev1.Pod) { pod.ResourceVersion = "18"; pod.Status.ContainerStatuses[1].Ready = true }
	for name, tc := range map[string]struct {
		next              *corev1.Pod
		quiet, containers time.Duration // after noon; it is seen again after a minute
	}{
		"the same version":                   {newPod(mainDone), 0, 0},
		"another version":                    {newPod(mainDone, probed), time.Minute, 0},
		"a container that ended":             {newPod(mainDone, sidecarDone, probed), time.Minute, time.Minute},
		"a container that was started again": {newPod(mainDone, probed, func(p *corev1.Pod) { p.Status.ContainerStatuses[1].RestartCount++ }), time.Minute, time.Minute},
		"another pod of the name":            {newPod(mainDone, probed, func(p *corev1.Pod) { p.UID = "5b2c" }), time.Minute, time.Minute},
		"a pod of which nothing has ended":   {newPod(), time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			var seen sightings
			seen.see(newPod(mainDone), noon)
			quiet, containers := seen.see(tc.next, noon.Add(time.Minute))
			if quiet.Sub(noon) != tc.quiet || containers.Sub(noon) != tc.containers {
				t.Errorf("quiet since %s and its containers since %s after noon, want %s and %s", quiet.Sub(noon), containers.Sub(noon), tc.quiet, tc.containers)
			}
		})
	}
}

func TestAForgottenPodIsSeenAsItIsFromNowOn(t *testing.T) {
	var seen sightings
	seen.see(newPod(mainDone), noon)
	seen.forget(keyOf(newPod()))
	if quiet, containers := seen.see(newPod(mainDone), noon.Add(time.Hour)); !quiet.Equal(noon.Add(time.Hour)) || !containers.Equal(quiet) {
		t.Errorf("quiet since %s, containers since %s", quiet, containers)
	}
}
