//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// EventuallyStatus polls the policy until the check of its status returns nil.
func (t *Test) EventuallyStatus(policy *v1alpha1.SidecarTerminationPolicy, what string, check func(v1alpha1.PolicyStatus) error) {
	t.Helper()
	t.Eventually(what, StatusTimeout, func(ctx context.Context) error {
		current := &v1alpha1.SidecarTerminationPolicy{}
		if err := t.Client.Get(ctx, client.ObjectKeyFromObject(policy), current); err != nil {
			return err
		}
		return check(current.Status)
	})
}

// Condition returns a condition of a policy, or an empty one.
func Condition(status v1alpha1.PolicyStatus, conditionType string) metav1.Condition {
	if condition := meta.FindStatusCondition(status.Conditions, conditionType); condition != nil {
		return *condition
	}
	return metav1.Condition{}
}
