// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/podtest"
)

// The write of a phase moves the pod from one cache to the other, and either may see it first.
func TestNewerVersionOfPodIsRead(t *testing.T) {
	for _, tc := range []struct{ unfinished, teardown, want string }{
		{"9", "10", "10"}, {"10", "9", "10"}, {"9", "", "9"}, {"", "10", "10"}, {"", "", ""},
	} {
		cached := func(version string) pinned {
			if version == "" {
				return pinned{}
			}
			return pinned{pod: podtest.New(func(p *corev1.Pod) { p.ResourceVersion = version })}
		}
		reader := &clusterReader{cache: cached(tc.unfinished), teardown: cached(tc.teardown)}
		pod, err := reader.pod(t.Context(), keyOf(podtest.New()))
		got := ""
		if err == nil {
			got = pod.ResourceVersion
		}
		if got != tc.want || client.IgnoreNotFound(err) != nil {
			t.Errorf("versions %q and %q: read %q, error %v", tc.unfinished, tc.teardown, got, err)
		}
	}
}
