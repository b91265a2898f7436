// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Objects are what Read reads. Anybody may have written them.
type Objects struct {
	Pod      *corev1.Pod
	View     resolve.View
	Attempts []plan.Attempt
	// Job is the pod's Job, or nil.
	Job *batchv1.Job
	// Now separates the past from the future.
	Now time.Time
}

// maxSkew bounds how far the clocks of the API server, the nodes and the operator may differ.
const maxSkew = time.Minute

// maxManagers bounds the field managers of a pod that are read.
const maxManagers = 64

// Read returns what the objects record of the completion of a pod whose main containers are done.
func Read(o Objects) Facts {
	facts := Facts{MainsDone: o.mainsDone()}
	o.addAttempts(&facts)
	facts.Noticed, facts.Drained = o.noticed(facts), o.drained(facts)
	facts.Seen = Moment{Note: NotRecorded}
	if facts.Drained != (Moment{}) {
		// The operator waited for the drain: what happened meanwhile cost no time.
		facts.Noticed, facts.Seen = Moment{}, Moment{}
	}
	facts.SidecarsEnded = o.sidecarsEnded()
	if facts.Attempts == nil {
		facts.endedByThemselves()
	}
	facts.JobFinished, facts.OtherPods = o.jobFinished()
	o.addPhase(&facts)
	return facts
}

// moment judges a recorded time.
func (o Objects) moment(t time.Time) Moment {
	switch {
	case t.Unix() <= 0:
		return Moment{Note: NotRecorded}
	case t.After(o.Now.Add(maxSkew)):
		return Moment{Note: InTheFuture}
	case t.Before(o.Pod.CreationTimestamp.Add(-maxSkew)):
		return Moment{Note: BeforePod}
	}
	return Moment{Time: t}
}

func (o Objects) mainsDone() Moment {
	var last time.Time
	for i := range o.Pod.Status.ContainerStatuses {
		status := &o.Pod.Status.ContainerStatuses[i]
		if end := status.State.Terminated; end != nil && slices.Contains(o.View.Mains, status.Name) && last.Before(end.FinishedAt.Time) {
			last = end.FinishedAt.Time
		}
	}
	return o.moment(last)
}

// noticed returns when the pod's condition Ready became false. If the pod was not ready when its last main container ended, that
// is another moment.
func (o Objects) noticed(facts Facts) Moment {
	for i := range o.Pod.Status.Conditions {
		condition := &o.Pod.Status.Conditions[i]
		if condition.Type != corev1.PodReady || condition.Status != corev1.ConditionFalse {
			continue
		}
		at := o.moment(condition.LastTransitionTime.Time)
		if len(facts.Attempts) > 0 && at.Time.After(facts.Attempts[0].Started.Time) || at.Time.Before(facts.MainsDone.Time) {
			break
		}
		return at
	}
	return Moment{Note: NotRecorded}
}

// drained returns when the first sidecar has drained, by the settings in effect now.
func (o Objects) drained(facts Facts) Moment {
	drain := Drain(o.View)
	over := facts.MainsDone.Time.Add(drain)
	switch {
	case drain == 0 || facts.MainsDone.Time.IsZero() || len(facts.Attempts) > 0 && over.After(facts.Attempts[0].Started.Time.Add(Resolution)):
		return Moment{}
	case over.After(o.Now):
		return Moment{Note: NotYet}
	}
	return Moment{Time: over}
}

// Drain returns how long the first sidecar drains.
func Drain(view resolve.View) time.Duration {
	if len(view.Sidecars) == 0 {
		return 0
	}
	return slices.MinFunc(view.Sidecars, func(a, b resolve.Sidecar) int { return cmp.Compare(a.Drain, b.Drain) }).Drain
}

// addAttempts adds the attempts in the order of their starts.
func (o Objects) addAttempts(facts *Facts) {
	sorted := slices.Clone(o.Attempts)
	slices.SortStableFunc(sorted, func(a, b plan.Attempt) int { return a.Started.Compare(b.Started) })
	for _, attempt := range sorted {
		facts.AddAttempt(Attempt{Mode: attempt.Mode, For: attempt.For, Number: attempt.Number + 1, Started: o.moment(attempt.Started)})
	}
}

// sidecarsEnded returns when the last sidecar ended. Sidecars that never started do not count once the pod has finished.
func (o Objects) sidecarsEnded() Moment {
	var last time.Time
	ended := true
	for i := range o.Pod.Status.ContainerStatuses {
		status := &o.Pod.Status.ContainerStatuses[i]
		if o.View.Sidecar(status.Name) == nil {
			continue
		}
		if end := status.State.Terminated; end != nil && last.Before(end.FinishedAt.Time) {
			last = end.FinishedAt.Time
		}
		ended = ended && (status.State.Terminated != nil || status.State.Running == nil && plan.HasTerminalPhase(o.Pod))
	}
	if !ended {
		return Moment{Note: NotYet}
	}
	return o.moment(last)
}

// endedByThemselves corrects the facts of a pod without attempts: its sidecars have ended, or the operator has not acted yet.
func (f *Facts) endedByThemselves() {
	switch {
	case f.SidecarsEnded.Note == NotYet:
		f.Attempts = []Attempt{{Started: Moment{Note: NotYet}}}
	case f.SidecarsEnded.Time.Before(f.MainsDone.Time):
		f.SidecarsEnded = Moment{}
		fallthrough
	default:
		f.Seen = Moment{}
	}
}

// jobFinished returns the time of the Job's final condition, and whether the Job had counted other pods.
func (o Objects) jobFinished() (Moment, bool) {
	owner := metav1.GetControllerOf(o.Pod)
	if o.Job == nil || owner == nil || owner.UID != o.Job.UID {
		return Moment{}, false
	}
	others := int64(o.Job.Status.Succeeded)+int64(o.Job.Status.Failed) > 1
	for i := range o.Job.Status.Conditions {
		condition := &o.Job.Status.Conditions[i]
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			return o.moment(condition.LastTransitionTime.Time), others
		}
	}
	return Moment{Note: NotYet}, others || o.Job.Status.Active > 0
}

// addPhase adds when the pod got its terminal phase. A pod's status has no such time, so the fields that its managers have
// written tell: the operator writes the phase together with its annotation, and any other writer is the kubelet.
func (o Objects) addPhase(facts *Facts) {
	if !plan.HasTerminalPhase(o.Pod) {
		facts.PodFinished = Moment{Note: NotYet}
		return
	}
	kubelet, operator := o.phaseWriters()
	newest := newestPhase(facts.Attempts)
	if hasPhase := newest >= 0 && facts.Attempts[newest].Mode == v1alpha1.ModePodPhase; hasPhase && (operator || kubelet.IsZero()) {
		facts.PhaseWritten, facts.PodFinished = true, facts.Attempts[newest].Started
		return
	}
	facts.PodFinished = o.moment(kubelet)
	if done := facts.JobFinished.Time; !done.IsZero() && facts.PodFinished.Time.After(done.Add(Resolution)) {
		facts.PodFinished = Moment{Note: LaterWritten}
	}
}

// phaseWriters returns the last write of the kubelet, if it wrote the phase, and whether the operator did.
func (o Objects) phaseWriters() (kubelet time.Time, operator bool) {
	for i := range min(len(o.Pod.ManagedFields), maxManagers) {
		entry := &o.Pod.ManagedFields[i]
		var fields struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
			Status map[string]json.RawMessage `json:"f:status"`
		}
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, phase := fields.Status["f:phase"]; !phase {
			continue
		}
		if _, own := fields.Metadata.Annotations["f:"+v1alpha1.AnnotationPodPhase]; own {
			operator = true
		} else {
			kubelet = entry.Time.Time
		}
	}
	return kubelet, operator
}
