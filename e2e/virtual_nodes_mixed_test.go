//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// attempt is what the operator did to terminate a sidecar.
type attempt struct {
	crrs                       int
	imageSwapped, phaseWritten bool
}

// One Job has a pod on each node type, and one policy uses the mode of each node type.
func TestJobAcrossNodeTypes(t *testing.T) {
	harness.Shared(t)
	swapped, written, recreated := attempt{imageSwapped: true}, attempt{phaseWritten: true}, attempt{crrs: 1}
	for _, c := range []struct {
		exitCodes              v1alpha1.ExitCodes
		sidecar                string
		virtual, fargate, real attempt
	}{
		{v1alpha1.ExitCodesIgnore, harness.ExitsSevenOnTerm, swapped, written, written},
		{v1alpha1.ExitCodesRespect, harness.ExitsZeroOnTerm, swapped, swapped, recreated},
	} {
		for _, restartPolicy := range jobRestartPolicies {
			t.Run(string(restartPolicy)+"/"+string(c.exitCodes), func(t *testing.T) {
				t.Parallel()
				test := harness.New(t)
				job := harness.Job("job", restartPolicy, harness.Sidecar(c.sidecar), harness.Main(5))
				job.Spec.Parallelism, job.Spec.Completions = ptr.To[int32](3), ptr.To[int32](3)
				// An image swap is a restart.
				job.Spec.BackoffLimit = ptr.To[int32](3)
				template := &job.Spec.Template
				template.Labels = map[string]string{"app": "mixed"}
				template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
				template.Spec.Affinity = &corev1.Affinity{
					// The pods also tolerate the taints of other nodes.
					NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
						NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
							Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
							Values: append([]string{realNode(t, test.Cluster).Labels[corev1.LabelHostname]}, daemonlessNodes...),
						}}}},
					}},
					PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
						TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: template.Labels},
					}}},
				}
				policy := harness.Policy(v1alpha1.ModeAuto)
				policy.Spec.ExitCodes = c.exitCodes
				test.Create(policy, job)
				test.WaitForComplete("job")
				requireModesOfNodes(test, c.real, map[string]attempt{virtualNode: c.virtual, fargateNode: c.fargate})
				test.EventuallyStatus(policy, "all pods to be counted as terminated", func(status v1alpha1.PolicyStatus) error {
					if status.TerminatedPods != 3 || status.FailedAttempts != 0 || status.StuckPods != 0 {
						return fmt.Errorf("the status is %+v", status)
					}
					return nil
				})
			})
		}
	}
}

// requireModesOfNodes requires that each node had one pod, and that its sidecar was terminated by the attempt of its node in others,
// or by the default.
func requireModesOfNodes(test *harness.Test, byDefault attempt, others map[string]attempt) {
	test.Helper()
	test.EventuallySeen("the pods to have succeeded", harness.FinishTimeout, func(seen harness.Seen) error {
		for _, record := range seen.Pods("job") {
			if record.Pod.Status.Phase != corev1.PodSucceeded || len(record.Running()) > 0 {
				return errors.New(seen.Describe("job"))
			}
		}
		return nil
	})
	test.Recorder.Look(func(seen harness.Seen) {
		nodes := map[string]bool{}
		for _, record := range seen.Pods("job") {
			node := record.Pod.Spec.NodeName
			nodes[node] = true
			got := attempt{
				crrs:         len(seen.CRRs(record.Pod.Name)),
				imageSwapped: record.Image(harness.SidecarName) == harness.QuickExitImage,
				phaseWritten: record.Pod.Annotations[v1alpha1.AnnotationPodPhase] != "",
			}
			want, ok := others[node]
			if !ok {
				want = byDefault
			}
			if got != want {
				test.Errorf("The attempt on node %s is %+v, want %+v", node, got, want)
			}
			if main := record.Container(harness.MainName); main.RestartCount != 0 || record.Reversal() != "" {
				test.Errorf("Pod on node %s: %s", node, seen.Describe("job"))
			}
		}
		if len(nodes) != 3 || !nodes[virtualNode] || !nodes[fargateNode] {
			test.Errorf("The pods ran on %v", nodes)
		}
	})
}

// The node of a running pod is deleted and registered again, as when a virtual node is replaced.
func TestVirtualNodeIsReplaced(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.Create(harness.Policy(v1alpha1.ModeAuto),
		onNode(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(15)), virtualNode))
	test.WaitForRunning("job")
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: virtualNode}}
	test.Get(old)
	if err := test.Client.Delete(test.Context(), old.DeepCopy()); err != nil {
		test.Fatalf("Delete the node: %v", err)
	}
	requireEndedByImage(test)
	replaced := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: virtualNode}}
	test.Get(replaced)
	if replaced.UID == old.UID {
		test.Errorf("The node was not replaced")
	}
}
