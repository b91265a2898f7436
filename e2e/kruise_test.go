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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// The operator notices that OpenKruise is removed, starts without it, and uses it once it is installed, without a restart.
func TestKruiseRemovedAndInstalled(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
	test := harness.New(t)
	test.RestoreWith("component", "start", kruiseDaemon)
	test.RestoreWith("component", "start", kruiseManager)
	prePull := prePullPolicy(test)
	prePull.Spec.PodSelector.MatchLabels = map[string]string{policyLabel: "none"}
	test.Create(prePull)
	waitForPrePulled(test, prePull, "True PrePulled")
	removeKruise(test)
	waitForPrePulled(test, prePull, "False PrePullUnavailable OpenKruise does not serve ImagePullJobs")
	test.DeleteOperatorPod()
	test.WaitForOperator()
	operator := test.OperatorPod()

	auto, crr := columnPolicy(v1alpha1.ModeAuto), columnPolicy(v1alpha1.ModeCRR)
	crr.Spec.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect

	without := harness.Job("without-kruise", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
	without.Spec.Template.Labels = auto.Spec.PodSelector.MatchLabels
	test.Create(auto, without)
	record := test.RequireCompleted("without-kruise")
	test.RequireCRRs(record, 0)

	test.LocalCluster("component", "start", kruiseManager)
	test.LocalCluster("component", "start", kruiseDaemon)
	with := jobOf(corev1.RestartPolicyNever, harness.ExitsZeroOnTerm)
	with.Spec.Template.Labels = crr.Spec.PodSelector.MatchLabels
	test.Create(crr, with)
	endedByCRR(test)
	waitForPrePulled(test, prePull, "True PrePulled")

	now := test.OperatorPod()
	if now.UID != operator.UID || now.Status.ContainerStatuses[0].RestartCount != operator.Status.ContainerStatuses[0].RestartCount {
		test.Errorf("The operator restarted: pod %s with %+v, now pod %s with %+v",
			operator.Name, operator.Status.ContainerStatuses, now.Name, now.Status.ContainerStatuses)
	}
}

// removeKruise removes OpenKruise from the cluster. Its manager converts its custom resources and releases their finalizers, so it
// stops when they are gone. The webhooks go last, because without them the manager does not run.
func removeKruise(test *harness.Test) {
	test.Helper()
	var definitions []string
	for _, name := range strings.Fields(kubectl(test, "get", "customresourcedefinitions", "-o", "name")) {
		if strings.HasSuffix(name, ".kruise.io") {
			definitions = append(definitions, name)
		}
	}
	kubectl(test, append([]string{"delete", "--timeout=60s"}, definitions...)...)
	test.LocalCluster("component", "stop", kruiseDaemon)
	test.LocalCluster("component", "stop", kruiseManager)
	kubectl(test, "delete", "mutatingwebhookconfigurations/kruise-mutating-webhook-configuration",
		"validatingwebhookconfigurations/kruise-validating-webhook-configuration")
}

const kruiseDaemon = "kruise-daemon"

// The operator falls back to the next mode after the deadline. TestFaultsNodeAway has pods that are stuck.
func TestKruiseDaemonDown(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
	test := harness.New(t)
	test.RestoreWith("component", "start", kruiseDaemon)
	test.LocalCluster("component", "stop", kruiseDaemon)
	policy := with(v1alpha1.ModeCRR)
	policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](5)
	test.Create(policy, jobOf(corev1.RestartPolicyNever, harness.ExitsZeroOnTerm))
	test.WaitForEvent(test.RequireCompleted("job").Pod, v1alpha1.ReasonFallback)
}

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
		NodeLabelSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{corev1.LabelHostname: nodes[0].Labels[corev1.LabelHostname]},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "eks.amazonaws.com/compute-type", Operator: metav1.LabelSelectorOpDoesNotExist},
			},
		},
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
	selector, err := metav1.LabelSelectorAsSelector(policy.Spec.PrePull.NodeLabelSelector)
	if err != nil {
		t.Fatal(err)
	}
	list := harness.KruiseList("NodeImage")
	if err := test.Client.List(t.Context(), list, client.MatchingLabelsSelector{Selector: selector}); err != nil || len(list.Items) == 0 {
		t.Fatalf("got %d NodeImages and error %v", len(list.Items), err)
	}
	nodes := list.Items
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
