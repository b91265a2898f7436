// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Severity says how bad a finding is.
type Severity string

const (
	// SeverityProblem findings keep a pod from finishing, or a declaration from having any effect.
	SeverityProblem Severity = "Problem"
	// SeverityWarning findings may do so, or mean that things are done in another way than was declared.
	SeverityWarning Severity = "Warning"
	// SeverityNote findings are good to know.
	SeverityNote Severity = "Note"
)

// Finding is something that goes wrong, would go wrong or is good to know.
type Finding struct {
	Severity Severity `json:"severity"`
	// Reason is a constant that the operator uses for the same thing. It is empty where it has none.
	Reason    v1alpha1.Reason `json:"reason,omitempty"`
	Container string          `json:"container,omitempty"`
	Message   string          `json:"message"`
	// Hint says what to do about it.
	Hint string `json:"hint,omitempty"`
}

// Role is what a container is to the operator.
type Role string

// The roles of containers.
const (
	RoleMain          Role = "Main"
	RoleSidecar       Role = "Sidecar"
	RoleInit          Role = "Init"
	RoleNativeSidecar Role = "NativeSidecar"
)

// Container is one container of the pod.
type Container struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// DeclaredBy is a policy as KIND/NAME, or "environment". It is empty for mains that nothing names.
	DeclaredBy string `json:"declaredBy,omitempty"`
	// State is what the container does now; empty while there is no pod.
	State    string    `json:"state,omitempty"`
	Settings *Settings `json:"settings,omitempty"`
}

// Setting is a value and the place that it comes from.
type Setting struct {
	Value string         `json:"value"`
	From  resolve.Source `json:"from"`
}

// Settings are those of a sidecar, and what they come to.
type Settings struct {
	Mode  Setting `json:"mode"`
	Image Setting `json:"image"`
	// QuickExitPaths is what the image covers.
	QuickExitPaths Setting `json:"quickExitPaths"`
	ExitCodes      Setting `json:"exitCodes"`
	Drain          Setting `json:"drain"`
	Deadline       Setting `json:"deadline"`
	Fallback       Setting `json:"fallback"`
	// Ways are the modes on each kind of node that the pod may run on.
	Ways []Way `json:"ways"`
}

// Way is how a sidecar will be ended on one kind of node.
type Way struct {
	Where string `json:"where"`
	// Modes are tried in this order. There are none where no mode can be used, and Reason says why.
	Modes []v1alpha1.Mode `json:"modes"`
	// PhaseFirst is true where the pod's phase is written before the request of mode CRR, as a part of the same attempt.
	PhaseFirst bool            `json:"phaseFirst,omitempty"`
	Reason     v1alpha1.Reason `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`

	scenario scenario
	options  []plan.ModeOption
}

// Attempt is one try of the operator to end sidecars.
type Attempt struct {
	Mode       v1alpha1.Mode `json:"mode"`
	For        v1alpha1.Mode `json:"for,omitempty"`
	Number     int           `json:"number"`
	Containers []string      `json:"containers"`
	Started    metav1.Time   `json:"started"`
	Finished   *metav1.Time  `json:"finished,omitempty"`
	// Result is why the attempt has failed, or empty.
	Result string `json:"result,omitempty"`
}

// Event is what the operator has said of the pod.
type Event struct {
	Time    metav1.Time     `json:"time"`
	Type    string          `json:"type"`
	Reason  v1alpha1.Reason `json:"reason"`
	Message string          `json:"message"`
}

// Report is all there is to say about one pod, or about the pods that a template will make.
type Report struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Owner is the Job that the pod belongs to.
	Owner string `json:"owner,omitempty"`
	// Template is true where there is no pod yet.
	Template      bool          `json:"template,omitempty"`
	RestartPolicy string        `json:"restartPolicy"`
	Node          string        `json:"node,omitempty"`
	NodeKind      plan.NodeKind `json:"nodeKind,omitempty"`

	// Stage, StageReason and Message are what the operator decides now. A template has none.
	Stage       plan.Stage      `json:"stage,omitempty"`
	StageReason v1alpha1.Reason `json:"reason,omitempty"`
	Message     string          `json:"message,omitempty"`
	MainsDone   *metav1.Time    `json:"mainsDone,omitempty"`
	// NextLook is when the operator looks again even if nothing changes.
	NextLook *metav1.Time `json:"nextLook,omitempty"`

	Containers []Container `json:"containers"`
	Attempts   []Attempt   `json:"attempts,omitempty"`
	Events     []Event     `json:"events,omitempty"`
	Findings   []Finding   `json:"findings"`

	now    time.Time
	losses []resolve.Loss
}

// Now is the time of the report.
func (r *Report) Now() time.Time { return r.now }

// WorseThan reports whether the severity is worse than the other one. None at all is the least bad.
func (s Severity) WorseThan(other Severity) bool {
	return s != "" && (other == "" || rank(s) < rank(other))
}

// Worst returns the severity of the worst finding, or nothing where there are none.
func Worst(findings []Finding) Severity {
	var worst Severity
	for _, finding := range findings {
		if finding.Severity.WorseThan(worst) {
			worst = finding.Severity
		}
	}
	return worst
}

// sortFindings puts the worst first and otherwise keeps the order.
func sortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(rank(a.Severity), rank(b.Severity)) })
}

func rank(severity Severity) int {
	return slices.Index([]Severity{SeverityProblem, SeverityWarning, SeverityNote}, severity)
}
