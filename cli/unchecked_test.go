// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cli_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

func TestCheckPoliciesBeforeAdmission(t *testing.T) {
	c, namespace := newNamespace(t)
	var policies []*v1alpha1.SidecarTerminationPolicy
	for i := range 7 {
		policy := newPolicy(namespace)
		policy.Name = fmt.Sprintf("mesh-%d", i)
		create(t, c, policy)
		policies = append(policies, policy)
	}
	free := newPolicy(namespace)
	free.Name, free.Spec.Enforcement = "free", v1alpha1.EnforcementDryRun
	create(t, c, free)
	out, _ := runCommand(t, "check")
	if strings.Contains(out, "enforced policies") {
		t.Errorf("unexpected result without admission policies:\n%s", out)
	}

	installAdmission(t, c)
	out, _ = runCommand(t, "check")
	wantOutput(t, "policies older than admission policies", out, 0, 0,
		"warning 7 of 7 enforced policies were last changed before the admission policies that check authors: policy "+namespace+"/mesh-0, ",
		"and 2 more -> review them", "kubectl replace --force -f FILE")

	// A change that passed the admission policies is in the managed fields.
	testenv.Eventually(t, "a policy passes the admission policies", func(ctx context.Context) error {
		patch := client.MergeFrom(policies[0].DeepCopy())
		policies[0].Spec.Priority++
		if err := c.Patch(ctx, policies[0], patch); err != nil {
			return err
		}
		if out, _ = runCommand(t, "check"); !strings.Contains(out, "6 of 7 enforced policies") {
			return fmt.Errorf("check says\n%s", out)
		}
		return nil
	})
	for _, policy := range policies[1:] {
		if err := c.Delete(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
	}
	out, _ = runCommand(t, "check")
	wantOutput(t, "checked policies only", out, 0, 0, "ok 1 of 1 enforced policies passed the admission policies")
}
