//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// The API server rejects invalid policies and names the field.
func TestInvalidPolicyIsRejected(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	cases := []struct {
		name    string
		breakIt func(*v1alpha1.PolicySpec)
		field   string
		message string
	}{
		{
			name:    "sidecars and mainContainers",
			breakIt: func(spec *v1alpha1.PolicySpec) { spec.MainContainers = []v1alpha1.ContainerName{"main"} },
			field:   "spec", message: "exactly one of sidecars and mainContainers",
		},
		{
			name: "sidecars and mainContainersFrom",
			breakIt: func(spec *v1alpha1.PolicySpec) {
				spec.MainContainersFrom = &v1alpha1.MainContainersFrom{PodAnnotation: "example.com/mains"}
			},
			field: "spec", message: "exactly one of sidecars and mainContainers",
		},
		{
			name:    "neither sidecars nor mainContainers",
			breakIt: func(spec *v1alpha1.PolicySpec) { spec.Sidecars = nil },
			field:   "spec", message: "exactly one of sidecars and mainContainers",
		},
		{
			name: "PodPhase with Respect",
			breakIt: func(spec *v1alpha1.PolicySpec) {
				spec.Mode, spec.ExitCodes = v1alpha1.ModePodPhase, v1alpha1.ExitCodesRespect
			},
			field: "spec.exitCodes", message: "cannot be combined with mode: PodPhase",
		},
		{
			name: "PodPhase with Respect for one sidecar",
			breakIt: func(spec *v1alpha1.PolicySpec) {
				spec.Sidecars[0].Mode, spec.Sidecars[0].ExitCodes = v1alpha1.ModePodPhase, v1alpha1.ExitCodesRespect
			},
			field: "spec.sidecars[0].exitCodes", message: "cannot be combined with mode: PodPhase",
		},
		{
			name:    "invalid image reference",
			breakIt: func(spec *v1alpha1.PolicySpec) { spec.Image = "not an image" },
			field:   "spec.image", message: "image reference",
		},
		{
			name:    "unknown mode",
			breakIt: func(spec *v1alpha1.PolicySpec) { spec.Mode = "Kill" },
			field:   "spec.mode", message: "supported values",
		},
		{
			name:    "negative drain",
			breakIt: func(spec *v1alpha1.PolicySpec) { spec.DrainSeconds = ptr.To[int32](-1) },
			field:   "spec.drainSeconds", message: "greater than or equal to 0",
		},
		{
			name:    "deadline too short",
			breakIt: func(spec *v1alpha1.PolicySpec) { spec.TerminationDeadlineSeconds = ptr.To[int32](1) },
			field:   "spec.terminationDeadlineSeconds", message: "greater than or equal to 3",
		},
		{
			name:    "duplicate name",
			breakIt: func(spec *v1alpha1.PolicySpec) { spec.Sidecars = append(spec.Sidecars, spec.Sidecars[0]) },
			field:   "spec.sidecars[1]", message: "Duplicate value",
		},
		{
			name:    "invalid container name",
			breakIt: func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "Not A Name" },
			field:   "spec.sidecars[0].name", message: "should match",
		},
	}
	for _, c := range cases {
		policy := harness.Policy(v1alpha1.ModeAuto)
		c.breakIt(&policy.Spec.PolicySpec)
		policy.Namespace = test.Namespace
		requireInvalid(test, c.name, policy, c.field, c.message)

		cluster := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: test.Namespace}}
		cluster.Spec.PolicySpec = harness.PolicySpec(v1alpha1.ModeAuto)
		c.breakIt(&cluster.Spec.PolicySpec)
		requireInvalid(test, c.name+", cluster kind", cluster, c.field, c.message)
	}
}

func requireInvalid(test *harness.Test, what string, policy client.Object, field, message string) {
	test.Helper()
	err := test.Client.Create(test.Context(), policy)
	switch {
	case err == nil:
		test.DeleteAtEnd(policy)
		test.Errorf("%s: the policy was accepted", what)
	case !apierrors.IsInvalid(err):
		test.Errorf("%s: got error %v, want Invalid", what, err)
	case !strings.Contains(err.Error(), field+":") || !strings.Contains(err.Error(), message):
		test.Errorf("%s: got error %v, want %q for %s", what, err, message, field)
	}
}
