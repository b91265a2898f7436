//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// EventuallyStatus reads the policy until the check of its status returns nil.
func (t *Test) EventuallyStatus(policy *v1alpha1.SidecarTerminationPolicy, what string, check func(v1alpha1.PolicyStatus) error) {
	t.Helper()
	current := policy.DeepCopy()
	t.EventuallyGet(current, what, StatusTimeout, func() error { return check(current.Status) })
}

// Condition returns the policy's condition, or an empty one.
func Condition(status v1alpha1.PolicyStatus, conditionType string) metav1.Condition {
	if condition := meta.FindStatusCondition(status.Conditions, conditionType); condition != nil {
		return *condition
	}
	return metav1.Condition{}
}
