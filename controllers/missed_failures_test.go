// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/hack/podtest"
)

func TestReportedAfter(t *testing.T) {
	since := podtest.Noon.Add(500 * time.Millisecond)
	written := func(subresource string, at time.Duration) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Subresource: subresource, Time: new(metav1.NewTime(podtest.Noon.Add(at)))}
	}
	for name, tc := range map[string]struct {
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		"before":          {written("status", -time.Second), false},
		"in that second":  {written("status", 0), true},
		"after":           {written("status", time.Minute), true},
		"another part":    {written("", time.Minute), false},
		"no time is kept": {metav1.ManagedFieldsEntry{Subresource: "status"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podtest.New(podtest.MainDone, podtest.SidecarDone, func(p *corev1.Pod) {
				p.ManagedFields = []metav1.ManagedFieldsEntry{tc.entry}
			})
			if got := reportedAfter(pod, since); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
