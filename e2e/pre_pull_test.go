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
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// prePullTimeout exceeds OpenKruise's four attempts to pull an image.
const prePullTimeout = 5 * time.Minute

// prePullPolicy downloads the image of mode Image to one node with OpenKruise's daemon.
func prePullPolicy(test *harness.Test) *v1alpha1.SidecarTerminationPolicy {
	test.Helper()
	policy := harness.Policy(v1alpha1.ModeImage)
	policy.Name = "pre-pull"
	policy.Spec.Image = harness.QuickExitImage
	policy.Spec.PrePull = &v1alpha1.PrePull{
		NodeSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{corev1.LabelHostname: realNode(test.T, test.Cluster).Labels[corev1.LabelHostname]},
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

// withDaemon returns the policy's node selector. NodeImages have the labels of their nodes.
func withDaemon(t *testing.T, policy *v1alpha1.SidecarTerminationPolicy) labels.Selector {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(policy.Spec.PrePull.NodeSelector)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

func kruiseObjects(ctx context.Context, test *harness.Test, kind string, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	list := harness.KruiseList(kind)
	err := test.Client.List(ctx, list, options...)
	return list.Items, err
}

// The policy's status follows the pull, another image and a failure, and deleting the policy deletes the pull jobs.
func TestPrePullDownloadsImage(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	policy := prePullPolicy(test)
	test.Create(policy)
	waitForPrePulled(test, policy, "True PrePulled "+harness.QuickExitImage+" is on 1 of 1 nodes")

	nodes, err := kruiseObjects(t.Context(), test, "NodeImage", client.MatchingLabelsSelector{Selector: withDaemon(t, policy)})
	if err != nil || len(nodes) == 0 {
		t.Fatalf("got %d NodeImages and error %v", len(nodes), err)
	}
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
		jobs, err := kruiseObjects(ctx, test, "ImagePullJob", client.InNamespace(test.Namespace))
		if err == nil && len(jobs) > 0 {
			return fmt.Errorf("%d exist", len(jobs))
		}
		return err
	})
}

func TestPrePullFollowsKruise(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.RestoreWith("kruise", "install")
	policy := prePullPolicy(test)
	test.Create(policy)
	waitForPrePulled(test, policy, "True PrePulled")
	test.LocalCluster("kruise", "remove")
	waitForPrePulled(test, policy, "False PrePullUnavailable OpenKruise does not serve ImagePullJobs")
	test.LocalCluster("kruise", "install")
	waitForPrePulled(test, policy, "True PrePulled")
}
