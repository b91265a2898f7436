// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/imagelist"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// NodeKind says which mechanisms a pod's node has.
type NodeKind string

const (
	// NodeUnknown is the zero value: the operator has not seen the node.
	NodeUnknown NodeKind = ""
	// NodeReal has a kubelet, and OpenKruise's daemon where it is installed.
	NodeReal NodeKind = "Real"
	// NodeDaemonless has a kubelet, and cannot run OpenKruise's daemon.
	NodeDaemonless NodeKind = "Daemonless"
	// NodeVirtual is run by a virtual kubelet and has neither.
	NodeVirtual NodeKind = "Virtual"
	// NodeNotRead is the kind of all nodes if the operator may not read nodes, and nobody has said which kind they have. Only modes
	// that work on every kind may be used.
	NodeNotRead NodeKind = "NotRead"
)

// EnabledModes are the modes that the operator's flags turn on. The zero value turns on none.
type EnabledModes struct {
	CRR, Image bool
	PodPhase   PodPhaseUse
	// PrePull allows ImagePullJobs, which download the images of mode Image in advance.
	PrePull bool
}

// Enabled reports whether the mode is on.
func (e EnabledModes) Enabled(mode v1alpha1.Mode) bool {
	switch mode {
	case v1alpha1.ModeCRR:
		return e.CRR
	case v1alpha1.ModeImage:
		return e.Image
	case v1alpha1.ModePodPhase:
		return e.PodPhase == PodPhaseEnabled || e.PodPhase == PodPhaseLastResort
	case v1alpha1.ModeAuto:
	}
	return false
}

// PodPhaseUse says when pods may be ended by their phase.
type PodPhaseUse string

// The values of PodPhaseUse. Any other value means PodPhaseDisabled.
const (
	// PodPhaseEnabled uses mode PodPhase where CRR cannot be used, before Image.
	PodPhaseEnabled PodPhaseUse = "Enabled"
	// PodPhaseLastResort uses it after all other modes.
	PodPhaseLastResort PodPhaseUse = "LastResort"
	// PodPhaseDisabled never uses it.
	PodPhaseDisabled PodPhaseUse = "Disabled"
)

// Capabilities are what the cluster and the operator's flags allow.
type Capabilities struct {
	EnabledModes
	// CRRServed is true while OpenKruise serves ContainerRecreateRequests and its webhook guards them.
	CRRServed bool
	// NamespacesOnly is true if the operator watches single namespaces. It then cannot tell whether CRRs are served and guarded.
	NamespacesOnly bool
	// MaxGracePeriod is the longest terminationGracePeriodSeconds of a pod that may end by its phase. Zero means an hour for every pod.
	MaxGracePeriod time.Duration
	// Images are the quick-exit images that the operator's administrator permits.
	Images imagelist.List
}

// MaxNumber is the largest number of an attempt. Others may forge records of attempts with any number.
const MaxNumber = 9999

// Attempt is one attempt to end sidecars of the pod, as read from the cluster.
type Attempt struct {
	Mode v1alpha1.Mode
	// Number counts the attempts of one mode from 1 to MaxNumber. The number of a superseded attempt is reused.
	Number int
	// UID is the uid of the CRR, or empty where an annotation of the pod records the attempt.
	UID types.UID
	// RestartCounts holds the restart count of each container that the attempt ends, at the time when it began. A
	// container that had never started has -1. PodPhase ends every container and has no entries.
	RestartCounts map[string]int32
	// MainRestarts is how often each main container had been restarted when a CRR was created. Nil if that is unknown.
	MainRestarts map[string]int32
	Started      time.Time
	// Stopped is true if OpenKruise reports that it has stopped every container of a CRR.
	Stopped bool
	// Finished is when the mechanism reported the attempt as finished, or zero. It proves nothing about the containers.
	Finished time.Time
	// Message is the mechanism's own message.
	Message string
}

// Kubelet is what a node reports about its kubelet.
type Kubelet struct {
	// Version is empty if it is unknown.
	Version string
	// Features are those that the kubelet declares (KEP-5328). A kubelet before Kubernetes 1.36 declares none.
	Features []string
}

// Snapshot is everything that a decision depends on, except the time.
type Snapshot struct {
	Pod  *corev1.Pod
	View resolve.View
	Node NodeKind
	// Kubelet is what the pod's node reports about its kubelet.
	Kubelet      Kubelet
	Capabilities Capabilities
	// Attempts are those of modes CRR and Image. Next derives one of mode PodPhase from the pod.
	Attempts []Attempt
	// DrainsSince is when the operator saw the main containers end, by the clock of Next's argument. If it is zero, the node's
	// clock says since when sidecars drain.
	DrainsSince time.Time
	// PhaseSince is when the operator saw the pod's phase become terminal, by the same clock, or zero.
	PhaseSince time.Time
	// MarkAfter is the earliest time of the pod's next mark, and MarkedAt when the operator marked the pod last. Zero means now, and never.
	MarkAfter, MarkedAt time.Time
	// MarkVersion is the resourceVersion that the last mark gave the pod, or empty.
	MarkVersion string
	// AssumeMarked decides as if the pod was marked and its outcome recorded. It is set where nothing is written: for DryRun
	// policies and predictions.
	AssumeMarked bool
	// Denied holds the modes whose last write was denied, each with the API server's answer. Next does not use them. Marks are
	// writes of mode PodPhase.
	Denied map[v1alpha1.Mode]string
	// JobUnreadable is true if a policy includes injected containers, and the operator lacks permission to read the pod's Job. The view then
	// takes those containers for main containers.
	JobUnreadable bool
	// InvalidAnnotation is why the annotations that record attempts cannot be read, or empty. If it is set, Attempts is
	// incomplete.
	InvalidAnnotation string
}

// Stage is how far a pod has come.
type Stage string

const (
	// StageIgnored means that the operator leaves the pod alone.
	StageIgnored Stage = "Ignored"
	// StageWaiting means that a main container is not done, or that every open sidecar drains.
	StageWaiting Stage = "Waiting"
	// StageTerminating means that sidecars are being ended.
	StageTerminating Stage = "Terminating"
	// StageStuck means that the operator cannot go on without a change by somebody: no usable mode is left for a sidecar,
	// there is no main container, or an annotation is invalid.
	StageStuck Stage = "Stuck"
	// StageTerminated means that every sidecar has ended.
	StageTerminated Stage = "Terminated"
)

// Write is one write to the cluster: a mark with mode PodPhase, a new CRR with mode CRR, or new images with mode Image. Repeating it is safe.
type Write struct {
	// Mode is the mechanism that executes the write.
	Mode v1alpha1.Mode
	// Containers are the sidecars that the write ends, sorted by name. A mark in advance ends none.
	Containers []string
	// Attempt is the number of the attempt that the write starts, and Timeout how long the attempt may take before it has failed.
	Attempt int
	Timeout time.Duration
	// Mark is set for mode PodPhase.
	Mark *Mark
	// Images holds the quick-exit image of each container for mode Image.
	Images map[string]string
	// MainRestarts is how often each main container has been restarted. Set for mode CRR.
	MainRestarts map[string]int32
	// Supersedes are earlier CRRs to delete first: their containers have ended, and they block the next CRR. The new
	// attempt may reuse one of their numbers.
	Supersedes []Attempt
}

// Failure is an attempt after which a container had not ended.
type Failure struct {
	Container string
	Mode      v1alpha1.Mode
	Attempt   int
	Message   string
}

// Substitution means that a container's declared mode cannot be used as declared.
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
	// Writes must be executed in this order. The first one that fails ends the list.
	Writes []Write
	// MarkWaits is true if the pod needs another mark, which Snapshot.MarkAfter delays. RequeueAfter is then not later.
	MarkWaits bool
	// MarkDenied is why the API server denied the mark that the pod needs, or empty.
	MarkDenied string
	// RequeueAfter is when to requeue the pod even if nothing changes; zero means that a change will requeue it. It is not later than the
	// timeout of a write.
	RequeueAfter time.Duration
	// MainsDone is when the last main container ended; zero while one may run again.
	MainsDone time.Time
	// SidecarsEnded is when the last sidecar ended, by the node's clock; zero while one has not, and if the node does not say.
	SidecarsEnded time.Time
	// Tried is the mode of the newest attempt, and TriedNumber its number; empty and zero when there is none, or it is one of mode PodPhase
	// that did not end the pod.
	Tried       v1alpha1.Mode
	TriedNumber int
	// Failures and Substitutions are sorted by container.
	Failures      []Failure
	Substitutions []Substitution
	// OrderNotKept is why a write ends sidecars at once that their terminationOrder separates, or empty.
	OrderNotKept string
	// Restarts is how many restarts the writes cause that may count towards the Job's backoffLimit.
	Restarts int
}

// Ends returns the writes that end sidecars.
func (d Decision) Ends() []Write {
	return slices.DeleteFunc(slices.Clone(d.Writes), func(w Write) bool { return len(w.Containers) == 0 })
}
