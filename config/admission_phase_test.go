// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/testenv"
)

// Without the admission policy that decides outcomes, no write changes the terminal phase of a marked pod.
func TestTerminalPhaseIsKept(t *testing.T) {
	c, _ := newClient(t)
	applyAdmission(t, c, "phase.yaml")
	space := newNamespace(t)
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "default"}})
	finished := func(phase string) *corev1.Pod {
		pod := markedPod(space)
		createMarked(t, c, pod)
		if err := kubelet(phase+" main=0 proxy=0")(t.Context(), c, pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	probe := finished("Succeeded")
	testenv.Eventually(t, "the policy to be enforced", func(ctx context.Context) error {
		if err := c.Status().Patch(ctx, probe.DeepCopy(), kubeletPatch(probe.UID, "Failed main=0 proxy=7"), client.DryRunAll); !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("a write was not denied"), err)
		}
		return nil
	})
	for name, tc := range map[string]struct {
		phase  string
		write  podWriter
		denied bool
	}{
		"late kubelet":         {"Succeeded", kubelet("Failed main=0 proxy=7"), true},
		"kubelet that goes on": {"Succeeded", kubelet("Running main=0 proxy=0"), true},
		"late operator":        {"Failed", mark("{status: {phase: Succeeded}}"), true},
		"virtual kubelet":      {"Succeeded", putStatus("Failed main=0 proxy=7", func(pod *corev1.Pod) { pod.Labels, pod.Annotations = nil, nil }), true},
		"phase is removed":     {"Succeeded", mark("{status: {phase: null}}"), true},
		"same phase":           {"Succeeded", kubelet("Succeeded main=0 proxy=7"), false},
		"mark":                 {"Failed", mark("{metadata: {annotations: {sidecartermination.dev/main-containers: Running/UID}}}"), false},
		"first terminal phase": {"Running", kubelet("Failed main=0 proxy=7"), false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := finished(tc.phase)
			err := tc.write(t.Context(), c, pod.DeepCopy())
			const message = "the phase of a finished pod with label sidecartermination.dev/outcome does not change: it is "
			if apierrors.IsForbidden(err) != tc.denied || tc.denied && !strings.Contains(err.Error(), message+tc.phase) || !tc.denied && err != nil {
				t.Errorf("denied: %t: %v", tc.denied, err)
			}
		})
	}
	unmarked := unmarkedPod(t, c, space)
	for _, report := range []string{"Succeeded main=0 proxy=0", "Failed main=0 proxy=7"} {
		if err := kubelet(report)(t.Context(), c, unmarked); err != nil {
			t.Errorf("a pod without a mark: %v", err)
		}
	}
}
