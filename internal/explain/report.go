// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Severity is how bad a finding is.
type Severity string

const (
	// SeverityProblem findings keep a pod from finishing, or make a declaration ineffective.
	SeverityProblem Severity = "Problem"
	// SeverityWarning findings may do so, or mean that the operator does not do what was declared.
	SeverityWarning Severity = "Warning"
	// SeverityNote findings need no action.
	SeverityNote Severity = "Note"
)

// Finding is one result about a pod or a policy.
type Finding struct {
	Severity Severity `json:"severity"`
	// Reason is the constant that events, conditions and metrics use for the same cause.
	Reason    v1alpha1.Reason `json:"reason,omitempty"`
	Container string          `json:"container,omitempty"`
	Message   string          `json:"message"`
	// Hint says what to do about it.
	Hint string `json:"hint,omitempty"`
	// Commands do it, or the first step, in a POSIX shell. Findings on manifests have none; the hint of any other one without a command
	// says so.
	Commands []string `json:"commands,omitempty"`

	// finish is the command that finishes the pod, which complete adds to Hint and Commands, and hint is what Hint was before.
	finish, hint string
	lint         bool // lint shows it
	// policy is the policy that the hint changes, or empty.
	policy resolve.PolicyRef
}

const (
	orElse    = "; or "
	finishNow = "finish the pod now and keep the outcome of its main containers; deleting it repeats their work"
	noCommand = "; no command does this: change the manifest"
)

// OfSeveral returns the finding for several objects: without what finishes one pod, and with one command at most.
func (f Finding) OfSeveral() Finding {
	if f.finish != "" {
		f.Hint, f.Commands = f.hint, f.Commands[:len(f.Commands)-1]
		f.finish, f.hint = "", ""
		f.complete(false)
	}
	f.Commands, f.policy = f.Commands[:min(len(f.Commands), 1)], resolve.PolicyRef{}
	return f
}

// complete gives a finding with a hint a command, or says that there is none. Manifests have no commands: their names may be any text, and
// what is wrong is in a file.
func (f *Finding) complete(offline bool) {
	if f.finish != "" && !slices.Contains(f.Commands, f.finish) {
		f.hint = f.Hint
		if f.Hint != "" {
			f.Hint += orElse
		}
		f.Hint, f.Commands = f.Hint+finishNow, append(f.Commands, f.finish)
	}
	switch {
	case offline || f.Hint == "" || len(f.Commands) > 0 || strings.HasSuffix(f.Hint, noCommand):
	case about[f.Reason].check:
		f.Commands = []string{checkCommand}
	case about[f.Reason].edit && f.policy.Name != "":
		f.Commands = []string{"kubectl " + kubectlTarget("edit", f.policy)}
	default:
		f.Hint += noCommand
	}
}

// Summary counts findings by severity.
type Summary struct {
	Problems int `json:"problems"`
	Warnings int `json:"warnings"`
	Notes    int `json:"notes"`
}

// Policy returns the policy of the report's namespace or of the cluster, whether or not it selects the pod, or nil.
func (r *Report) Policy(ref resolve.PolicyRef) *resolve.Policy { return r.input.policy(ref) }

// policy returns the policy, whether or not it selects the pod, or nil.
func (p *Pod) policy(ref resolve.PolicyRef) *resolve.Policy {
	all := slices.Concat(p.Policies, p.NotSelecting)
	i := slices.IndexFunc(all, func(policy resolve.Policy) bool { return policy.Ref == ref })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Container is one container of the pod.
type Container struct {
	Name string       `json:"name"`
	Role resolve.Role `json:"role"`
	// DeclaredBy is the policy that decides the role, as KIND/NAME, or Environment or Annotation. It is empty for containers without a
	// declaration.
	DeclaredBy string `json:"declaredBy,omitempty"`
	// State is nil without a pod.
	State    *ContainerState `json:"state,omitempty"`
	Settings *Settings       `json:"settings,omitempty"`
}

// ContainerState is the current state of a container, as in the pod's status.
type ContainerState struct {
	corev1.ContainerState `json:",inline"`
	RestartCount          int32 `json:"restartCount"`
}

// Setting is a value and where it comes from.
type Setting[T any] struct {
	Value  T `json:"value"`
	Origin `json:",inline"`
}

// Origin is where a setting comes from. Policy is the policy that sets it, as KIND/NAME, or empty.
type Origin struct {
	Source resolve.Source `json:"source"`
	Policy string         `json:"policy,omitempty"`
}

func settingFrom[T any](value T, origin resolve.Origin) Setting[T] {
	setting := Setting[T]{value, Origin{Source: origin.Source}}
	if origin.Policy.Name != "" {
		setting.Policy = origin.Policy.String()
	}
	return setting
}

// Settings are the effective settings of a sidecar.
type Settings struct {
	Mode  Setting[v1alpha1.Mode] `json:"mode"`
	Image Setting[string]        `json:"image"`
	// QuickExitPaths lists the commands that the image covers.
	QuickExitPaths             Setting[[]string]                `json:"quickExitPaths"`
	ExitCodePolicy             Setting[v1alpha1.ExitCodePolicy] `json:"exitCodePolicy"`
	DrainSeconds               Setting[int64]                   `json:"drainSeconds"`
	TerminationOrder           Setting[int32]                   `json:"terminationOrder"`
	TerminationDeadlineSeconds Setting[int64]                   `json:"terminationDeadlineSeconds"`
	Fallback                   Setting[v1alpha1.Fallback]       `json:"fallback"`
	// Nodes has one entry for each node type that the pod may run on.
	Nodes []NodeModes `json:"nodes"`
}

// NodeModes is how a sidecar ends on one node type.
type NodeModes struct {
	// NodeType names the node type in words. NodeKind is empty where the kind makes no difference.
	NodeType string        `json:"nodeType"`
	NodeKind plan.NodeKind `json:"nodeKind,omitempty"`
	// OpenKruise says whether OpenKruise is usable. It is nil for nodes that are not real.
	OpenKruise *bool `json:"openKruise,omitempty"`
	// Modes are listed in the order of use, from the current attempt on. Without a usable mode the list is empty and Reason says why.
	Modes []v1alpha1.Mode `json:"modes"`
	// Attempt is the number of the attempt with the first mode, once the operator has tried to end the sidecar.
	Attempt int             `json:"attempt,omitempty"`
	Reason  v1alpha1.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`

	// crr is true if mode CRR may be served. certain is true if the pod can run on no other node type. present is true if the cluster is
	// known to have such nodes.
	crr, certain, present bool
	options               []plan.ModeOption
}

// Attempt is one try of the operator to end sidecars.
type Attempt struct {
	Mode           v1alpha1.Mode `json:"mode"`
	Number         int           `json:"number"`
	Sidecars       []string      `json:"sidecars"`
	StartTime      metav1.Time   `json:"startTime"`
	CompletionTime *metav1.Time  `json:"completionTime,omitempty"`
	// Failure is why the attempt failed, or empty.
	Failure string `json:"failure,omitempty"`
}

// Event is an event of the operator on the pod.
type Event struct {
	Time    metav1.Time     `json:"time"`
	Type    string          `json:"type"`
	Reason  v1alpha1.Reason `json:"reason"`
	Message string          `json:"message"`
}

// Report describes one pod, or the pods that a template will create.
type Report struct {
	// Kind, Namespace and Name identify the pod, or the Job or CronJob with the template.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Job is the name of the pod's Job.
	Job string `json:"job,omitempty"`
	// Template is true if no pod exists yet.
	Template      bool          `json:"template,omitempty"`
	RestartPolicy string        `json:"restartPolicy"`
	NodeName      string        `json:"nodeName,omitempty"`
	NodeKind      plan.NodeKind `json:"nodeKind,omitempty"`

	// Stage, Reason and Message are the current decision of the operator. A template has none.
	Stage   plan.Stage      `json:"stage,omitempty"`
	Reason  v1alpha1.Reason `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	// Planned is true for stage Terminating if the operator has not written anything to the pod yet.
	Planned bool `json:"planned,omitempty"`
	// MainsDoneTime is when the last main container ended for good.
	MainsDoneTime *metav1.Time `json:"mainsDoneTime,omitempty"`
	// NextReconcileTime is the latest time of the next reconcile.
	NextReconcileTime *metav1.Time `json:"nextReconcileTime,omitempty"`

	Containers []Container `json:"containers"`
	Attempts   []Attempt   `json:"attempts,omitempty"`
	Events     []Event     `json:"events,omitempty"`
	Findings   []Finding   `json:"findings"`

	// Now is the time of the report.
	Now time.Time `json:"-"`

	input     Pod
	overrides []resolve.Override
}

// severities are listed worst first. The empty severity is the least bad.
var severities = []Severity{SeverityProblem, SeverityWarning, SeverityNote, ""}

// WorseThan reports whether the severity is worse than the other one.
func (s Severity) WorseThan(other Severity) bool {
	return slices.Index(severities, s) < slices.Index(severities, other)
}

// Worst returns the severity of the worst finding, or nothing without findings.
func Worst(findings []Finding) Severity {
	var worst Severity
	for _, finding := range findings {
		if finding.Severity.WorseThan(worst) {
			worst = finding.Severity
		}
	}
	return worst
}

// Summarize counts the findings.
func Summarize(findings []Finding) Summary {
	counts := map[Severity]int{}
	for _, finding := range findings {
		counts[finding.Severity]++
	}
	return Summary{Problems: counts[SeverityProblem], Warnings: counts[SeverityWarning], Notes: counts[SeverityNote]}
}

// sorted returns the findings, which are not nil, with the worst one first and otherwise in their order.
func sorted(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	return append([]Finding{}, findings...)
}

// Age formats a duration like kubectl.
func Age(age time.Duration) string { return duration.HumanDuration(max(age, 0)) }
