//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// prePullTimeout exceeds OpenKruise's four attempts to pull an image.
const prePullTimeout = 5 * time.Minute

// prePullPolicy downloads the image of mode Image to one node with OpenKruise's daemon.
func prePullPolicy(test *harness.Test) *v1alpha1.SidecarTerminationPolicy {
	test.Helper()
	nodes, err := test.RealNodes(test.Context())
	if err != nil {
		test.Fatal(err)
	}
	policy := harness.Policy(v1alpha1.ModeImage)
	policy.Name = "pre-pull"
	policy.Spec.Image = harness.QuickExitImage
	policy.Spec.PrePull = &v1alpha1.PrePull{
		NodeSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{corev1.LabelHostname: nodes[0].Labels[corev1.LabelHostname]},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "eks.amazonaws.com/compute-type", Operator: metav1.LabelSelectorOpDoesNotExist},
			},
		},
		SandboxConfig: &v1alpha1.SandboxConfig{Labels: map[string]string{"tenant": "etl"}, Annotations: map[string]string{"e2e": "true"}},
	}
	return policy
}

// waitForPrePulled waits until status, reason and message of the policy's condition PrePulled start with want.
func waitForPrePulled(test *harness.Test, policy *v1alpha1.SidecarTerminationPolicy, want string) {
	test.Helper()
	test.EventuallyGet(policy, "condition PrePulled to be "+want, prePullTimeout, func() error {
		got := "unset"
		if c := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionPrePulled); c != nil && c.ObservedGeneration == policy.Generation {
			got = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
		}
		if !strings.HasPrefix(got, want) {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// The policy's status follows the pull, another image and a failure, and deleting the policy deletes the pull jobs.
func TestPrePullDownloadsImage(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	policy := prePullPolicy(test)
	test.Create(policy)
	waitForPrePulled(test, policy, "True PrePulled "+harness.QuickExitImage+" is on 1 of 1 nodes")

	// NodeImages have the labels of their nodes.
	selector, err := metav1.LabelSelectorAsSelector(policy.Spec.PrePull.NodeSelector)
	if err != nil {
		t.Fatal(err)
	}
	list := harness.KruiseList("NodeImage")
	if err := test.Client.List(t.Context(), list, client.MatchingLabelsSelector{Selector: selector}); err != nil || len(list.Items) == 0 {
		t.Fatalf("got %d NodeImages and error %v", len(list.Items), err)
	}
	nodes := list.Items
	repository, _, _ := strings.Cut(harness.QuickExitImage, ":")
	tenant, _, _ := unstructured.NestedString(nodes[0].Object, "spec", "images", repository, "sandboxConfig", "labels", "tenant")
	note, _, _ := unstructured.NestedString(nodes[0].Object, "spec", "images", repository, "sandboxConfig", "annotations", "e2e")
	if tenant != "etl" || note != "true" {
		t.Errorf("The NodeImage has label %q and annotation %q: %v", tenant, note, nodes[0].Object["spec"])
	}

	const unpullable = "127.0.0.1:1/never-pulled:1"
	test.MergePatch(policy, `{"spec":{"image":"`+unpullable+`"}}`)
	waitForPrePulled(test, policy, "False PrePullFailed "+unpullable+" is on 0 of 1 nodes and could not be pulled to "+nodes[0].GetName())

	test.MergePatch(policy, `{"spec":{"image":"`+harness.QuickExitImage+`"}}`)
	waitForPrePulled(test, policy, "True PrePulled")
	if err := test.Client.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	test.Eventually("the pull jobs to be deleted", prePullTimeout, func(ctx context.Context) error {
		jobs := harness.KruiseList("ImagePullJob")
		err := test.Client.List(ctx, jobs, client.InNamespace(test.Namespace))
		if err == nil && len(jobs.Items) > 0 {
			return fmt.Errorf("%d exist", len(jobs.Items))
		}
		return err
	})
}
