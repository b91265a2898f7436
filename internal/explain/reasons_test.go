// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// withoutHint are the reasons without a hint in about.
var withoutHint = []v1alpha1.Reason{
	// The operator or the kubelet is at work, or nothing is left to do.
	v1alpha1.ReasonPodDeleted, v1alpha1.ReasonPodDisrupted, v1alpha1.ReasonPodFinished, v1alpha1.ReasonPodNotScheduled,
	v1alpha1.ReasonMainContainersRunning, v1alpha1.ReasonDraining, v1alpha1.ReasonNodeUnknown, v1alpha1.ReasonSidecarStarting,
	v1alpha1.ReasonSidecarNotStarted, v1alpha1.ReasonMarking, v1alpha1.ReasonDecidedTooLate, v1alpha1.ReasonAttemptInProgress, v1alpha1.ReasonTerminating,
	v1alpha1.ReasonFallback, v1alpha1.ReasonTerminated, v1alpha1.ReasonFinishedByUser, v1alpha1.ReasonEnforced, v1alpha1.ReasonOverridden,
	v1alpha1.ReasonPrePulled, v1alpha1.ReasonPrePulling,
	// The hint depends on the pod, its node or its policies.
	v1alpha1.ReasonNoUsableMode, v1alpha1.ReasonVirtualNode, v1alpha1.ReasonNoKruiseDaemon, v1alpha1.ReasonNotSelected,
	v1alpha1.ReasonSidecarMatchesFailurePolicy,
	// Another finding on the same pod or policy has the hint: MayHang, DryRun or NotSelected.
	v1alpha1.ReasonNoSidecar, v1alpha1.ReasonWouldTerminate, v1alpha1.ReasonIdle,
	// The condition's own message says what to do.
	v1alpha1.ReasonPrePullFailed, v1alpha1.ReasonPrePullUnavailable,
}

func TestEachReasonHasAHintOrNone(t *testing.T) {
	source, err := os.ReadFile("../../api/v1alpha1/reasons.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^\tReason\w+ +Reason = "(\w+)"$`).FindAllStringSubmatch(string(source), -1)
	for _, match := range all {
		reason := v1alpha1.Reason(match[1])
		if hasHint := about[reason].hint != ""; hasHint == slices.Contains(withoutHint, reason) {
			t.Errorf("reason %s has a hint: %t; want one in about, or an entry in withoutHint", reason, hasHint)
		}
	}
	if len(all) < len(about) {
		t.Errorf("found %d reasons, want those of about, %d, at least", len(all), len(about))
	}
}
