// SPDX-License-Identifier: Apache-2.0

package podcache_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sidecar-termination/operator/internal/podcache"
)

func TestUnfinishedPods(t *testing.T) {
	selector := podcache.UnfinishedPods()
	for name, tc := range map[string]struct {
		policy corev1.RestartPolicy
		phase  corev1.PodPhase
		want   bool
	}{
		"Always":                  {corev1.RestartPolicyAlways, corev1.PodRunning, false},
		"Never, just created":     {corev1.RestartPolicyNever, "", true},
		"Never, pending":          {corev1.RestartPolicyNever, corev1.PodPending, true},
		"OnFailure, running":      {corev1.RestartPolicyOnFailure, corev1.PodRunning, true},
		"OnFailure, node unknown": {corev1.RestartPolicyOnFailure, corev1.PodUnknown, true},
		"Never, succeeded":        {corev1.RestartPolicyNever, corev1.PodSucceeded, false},
		"Never, failed":           {corev1.RestartPolicyNever, corev1.PodFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := selector.Matches(fields.Set{"spec.restartPolicy": string(tc.policy), "status.phase": string(tc.phase)}); got != tc.want {
				t.Errorf("selected: %t", got)
			}
		})
	}
}
