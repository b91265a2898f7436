//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// Pods with restartPolicy Always, as those of a CloneSet, and pods that no policy selects keep their sidecars. The Job shows that the
// operator had time to act.
func TestLeftAlone(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	labels := map[string]string{"app": "selected"}
	policy := harness.Policy(v1alpha1.ModeAuto)
	policy.Spec.PodSelector.MatchLabels = labels
	template := harness.PodTemplate(corev1.RestartPolicyAlways, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1))
	template.Labels = labels
	test.Create(policy, jobOf(corev1.RestartPolicyNever, harness.ExitsZeroOnTerm), harness.Pod("service", labels, template),
		harness.Kruise("CloneSet", "clone", map[string]any{
			"replicas": int64(1), "selector": map[string]any{"matchLabels": labels}, "template": harness.ToMap(template),
			"scaleStrategy": map[string]any{"disablePVCReuse": true},
		}))
	all := []string{"job", "service", "clone"}
	for _, owner := range all {
		test.WaitForMain(owner)
	}

	selected := harness.Job("selected", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
	selected.Spec.Template.Labels = labels
	test.Create(selected)
	test.RequireCompleted("selected")
	for _, owner := range all {
		requireUntouched(test, owner)
		test.Recorder.Look(func(seen harness.Seen) {
			if sidecar := seen.Pods(owner)[0].Container(harness.SidecarName); sidecar.State.Running == nil || sidecar.RestartCount != 0 {
				test.Errorf("The sidecar of %s is not running: %+v", owner, sidecar)
			}
		})
	}
}

// requireUntouched requires that the operator has not written to the controller's only pod, and has emitted no other events than
// the allowed ones.
func requireUntouched(test *harness.Test, owner string, allowedEvents ...string) {
	test.Helper()
	var record harness.PodRecord
	test.Recorder.Look(func(seen harness.Seen) { record = *seen.Pods(owner)[0] })
	requireUnwritten(test, &record, allowedEvents...)
}

// requireUnwritten requires that the operator has not written to the pod, and has emitted no other events than the allowed ones.
func requireUnwritten(test *harness.Test, record *harness.PodRecord, allowedEvents ...string) {
	test.Helper()
	test.RequireCRRs(record, 0)
	for _, container := range record.Pod.Spec.Containers {
		test.RequireImage(record, container.Name, harness.BusyboxImage)
	}
	for _, keys := range []map[string]string{record.Pod.Labels, record.Pod.Annotations} {
		for key := range keys {
			if strings.HasPrefix(key, v1alpha1.GroupName+"/") {
				test.Errorf("Pod %s has %s", record.Pod.Name, key)
			}
		}
	}
	for _, condition := range record.Pod.Status.Conditions {
		if condition.Type == v1alpha1.PodConditionSidecarTerminated {
			test.Errorf("Pod %s has the condition %s", record.Pod.Name, condition.Type)
		}
	}
	if events := eventsOfOperator(test, record.Pod); len(events) > 0 && !slices.Equal(events, allowedEvents) {
		test.Errorf("Pod %s has events %v of the operator, want at most %v", record.Pod.Name, events, allowedEvents)
	}
	for _, manager := range record.Pod.ManagedFields {
		if strings.Contains(manager.Manager, "sidecar-termination") && !strings.Contains(manager.Manager, "e2e") {
			test.Errorf("Pod %s was written by %s", record.Pod.Name, manager.Manager)
		}
	}
}
