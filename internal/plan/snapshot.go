// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/imagelist"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// NodeKind says what can be done on a pod's node.
type NodeKind string

const (
	// NodeUnknown is the zero value: the node has not been seen.
	NodeUnknown NodeKind = ""
	// NodeReal has a kubelet, and Kruise's daemon where Kruise is installed.
	NodeReal NodeKind = "Real"
	// NodeDaemonless has a kubelet, and cannot run Kruise's daemon.
	NodeDaemonless NodeKind = "Daemonless"
	// NodeVirtual is served by a virtual kubelet: it has neither.
	NodeVirtual NodeKind = "Virtual"
)

// PodPhaseUse says when the operator may write the phase of a pod.
type PodPhaseUse string

// The values of PodPhaseUse. Any other value means PodPhaseDisabled.
const (
	// PodPhaseEnabled writes the phase before a request whose exit code is ignored, and as a mode of its own.
	PodPhaseEnabled PodPhaseUse = "Enabled"
	// PodPhaseLastResort tries Image before any mode that writes the phase.
	PodPhaseLastResort PodPhaseUse = "LastResort"
	// PodPhaseDisabled never writes the phase.
	PodPhaseDisabled PodPhaseUse = "Disabled"
)

// Allowed reports whether the phase may be written at all.
func (u PodPhaseUse) Allowed() bool { return u == PodPhaseEnabled || u == PodPhaseLastResort }

// Capabilities are what the cluster and the operator's flags allow.
type Capabilities struct {
	// CRR is true while Kruise serves ContainerRecreateRequests behind its webhook.
	CRR bool
	// PodPhase says when the phase may be written.
	PodPhase PodPhaseUse
	// MaxGracePeriod is the longest terminationGracePeriodSeconds of a pod whose phase may be written, unless its policy
	// declares mode PodPhase. Zero means no limit.
	MaxGracePeriod time.Duration
	// CRRDisabled and ImageDisabled are true where the operator runs without that mode.
	CRRDisabled   bool
	ImageDisabled bool
	// Images are the quick-exit images that the operator's administrator permits.
	Images imagelist.List
}

// Attempt is one try to end sidecars of the pod, as found in the world.
type Attempt struct {
	Mode v1alpha1.Mode
	// For is the mode that the attempt belongs to. It differs from Mode for the phase patch that goes before a
	// ContainerRecreateRequest.
	For v1alpha1.Mode
	// Number tells the attempts of one mode apart; the first is 0. That of an attempt that was superseded is used again.
	Number int
	// UID is that of the object which records the attempt; empty where the pod itself does.
	UID types.UID
	// RestartCounts holds, for each container that the attempt is to end, its restart count when the attempt began.
	// A container that had never started has -1. PodPhase ends every container and has none here.
	RestartCounts map[string]int32
	Started       time.Time
	// Finished is when the mechanism said that it was through, zero while it has not. It proves nothing about the
	// containers.
	Finished time.Time
	// Message is what the mechanism said of itself.
	Message string
}

// Snapshot is all that a decision depends on, but for the time.
type Snapshot struct {
	Pod          *corev1.Pod
	View         resolve.View
	Node         NodeKind
	Capabilities Capabilities
	Attempts     []Attempt
	// QuietSince is since when the pod's resourceVersion has been seen unchanged, and ContainersSince since when its
	// containers have been seen in their states. Both are of the clock that Next is given.
	QuietSince, ContainersSince time.Time
	// SettlePeriod is how long the pod must have been quiet before its phase is written.
	SettlePeriod time.Duration
	// Refused are the modes of which a write was refused a moment ago, each with the answer. They are not used now.
	Refused map[v1alpha1.Mode]string
	// Unreadable is why the records on the pod cannot be read; empty when they can. Attempts are not known then.
	Unreadable string
}

// Stage is how far a pod has come.
type Stage string

const (
	// StageIgnored pods are none of the operator's business.
	StageIgnored Stage = "Ignored"
	// StageWaiting pods have main containers that are not done, or sidecars that drain.
	StageWaiting Stage = "Waiting"
	// StageTerminating pods have sidecars that are being ended.
	StageTerminating Stage = "Terminating"
	// StageStuck pods have a sidecar that no usable mode has ended or could end.
	StageStuck Stage = "Stuck"
	// StageTerminated pods have no sidecar left.
	StageTerminated Stage = "Terminated"
)

// Action is one write. Repeating it is safe.
type Action struct {
	// Mode is the mechanism that carries it out.
	Mode v1alpha1.Mode
	// For is the mode that the action belongs to. It differs from Mode for the phase patch that goes before a
	// ContainerRecreateRequest.
	For v1alpha1.Mode
	// Attempt is the number of the attempt that the action starts.
	Attempt int
	// Containers are the sidecars to end, sorted by name. Images holds the quick-exit image of each in mode Image.
	Containers []string
	Images     map[string]string
	// Phase is the phase to write in mode PodPhase.
	Phase corev1.PodPhase
	// ReleasePhase takes the guard off a phase that the kubelet did not act upon; nothing else is written then.
	ReleasePhase bool
	// Deadline is the time after which the attempt has failed.
	Deadline time.Duration
	// Supersedes are earlier attempts of the mode that have done their work and would be in the way. One of them may have
	// the number of the attempt that the action starts.
	Supersedes []Attempt
}

// Failure is an attempt after which a container had not ended.
type Failure struct {
	Container string
	Mode      v1alpha1.Mode
	Attempt   int
	Message   string
}

// Substitution says that a container's declared mode cannot be used as declared.
type Substitution struct {
	Container string
	Wanted    v1alpha1.Mode
	// Used is the mode that takes its place; empty when none does.
	Used    v1alpha1.Mode
	Reason  v1alpha1.Reason
	Message string
}

// Decision is what to do about a pod now.
type Decision struct {
	Stage   Stage
	Reason  v1alpha1.Reason
	Message string
	// Actions are to be carried out in this order; a failed one ends the list.
	Actions []Action
	// RequeueAfter is when to look again even if nothing changes; zero means that a change will bring the pod back.
	RequeueAfter time.Duration
	// MainsDone is when the last main container ended; zero while one may run again.
	MainsDone time.Time
	// Tried is the mode that the newest attempt found in the world belongs to, and TriedNumber its number; empty and zero
	// when there is none.
	Tried       v1alpha1.Mode
	TriedNumber int
	// Refused are those of the snapshot.
	Refused map[v1alpha1.Mode]string
	// Failures and Substitutions are sorted by container.
	Failures      []Failure
	Substitutions []Substitution
	// BackoffLimitRisk is true when mode Image adds a restart that counts towards the Job's backoffLimit.
	BackoffLimitRisk bool
}
