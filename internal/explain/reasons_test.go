// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// withoutHint are the reasons without a hint in about.
var withoutHint = []v1alpha1.Reason{
	// The operator, the kubelet or Kubernetes is at work, or nothing is left to do.
	v1alpha1.ReasonPodDeleted, v1alpha1.ReasonPodDisrupted, v1alpha1.ReasonPodFinished, v1alpha1.ReasonPodNotScheduled,
	v1alpha1.ReasonMainContainersRunning, v1alpha1.ReasonDraining, v1alpha1.ReasonNodeUnknown, v1alpha1.ReasonSidecarStarting,
	v1alpha1.ReasonSidecarNotStarted, v1alpha1.ReasonMarking, v1alpha1.ReasonDecidedTooLate, v1alpha1.ReasonAttemptInProgress, v1alpha1.ReasonTerminating,
	v1alpha1.ReasonFallback, v1alpha1.ReasonTerminated, v1alpha1.ReasonFinishedByUser, v1alpha1.ReasonEnforced, v1alpha1.ReasonOverridden,
	v1alpha1.ReasonPrePulled, v1alpha1.ReasonPrePulling, v1alpha1.ReasonNativeSidecar,
	// The hint depends on the pod, its node or its policies.
	v1alpha1.ReasonNoUsableMode, v1alpha1.ReasonVirtualNode, v1alpha1.ReasonNoKruiseDaemon, v1alpha1.ReasonNotSelected,
	v1alpha1.ReasonSidecarMatchesFailurePolicy,
	// Another finding on the same pod or policy has the hint: MayHang, DryRun or NotSelected.
	v1alpha1.ReasonNoSidecar, v1alpha1.ReasonWouldTerminate, v1alpha1.ReasonIdle,
	// The condition's own message says what to do.
	v1alpha1.ReasonPrePullFailed, v1alpha1.ReasonPrePullUnavailable,
}

// Each reason that needs action has a hint with a command, or one that says that there is none.
func TestEachReasonHasACommandOrSaysThereIsNone(t *testing.T) {
	all := listed(t, "../../api/v1alpha1/reasons.go", `(?m)^\tReason\w+ +Reason = "(\w+)"$`)
	for _, name := range all {
		reason := v1alpha1.Reason(name)
		if hasHint := about[reason].hint != ""; hasHint == slices.Contains(withoutHint, reason) {
			t.Errorf("reason %s has a hint: %t; want one in about, or an entry in withoutHint", reason, hasHint)
		} else if f := finding(SeverityProblem, reason, "", ""); hasHint {
			f.policy = resolve.PolicyRef{Kind: resolve.KindCluster, Name: "mesh"}
			if f.complete(false); len(f.Commands) == 0 && !strings.HasSuffix(f.Hint, noCommand) {
				t.Errorf("reason %s has no command, and its hint %q does not say so", reason, f.Hint)
			}
		}
	}
	if len(all) < len(about) {
		t.Errorf("found %d reasons, want those of about, %d, at least", len(all), len(about))
	}
	if diff := cmp.Diff(all, listed(t, "../../docs/troubleshooting.md", `(?m)^### (.+)$`)); diff != "" {
		t.Errorf("reasons and headings of docs/troubleshooting.md with meaning, place and remedy (-reason +heading):\n%s", diff)
	}
}

// listed returns what the expression finds in the file, sorted.
func listed(t *testing.T, file, expression string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(string(text), -1) {
		found = append(found, match[1])
	}
	slices.Sort(found)
	return found
}
