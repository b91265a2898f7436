// SPDX-License-Identifier: Apache-2.0

package podmodel

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// NothingRecorded is in the place of a rule for a write that changed nothing that the rules are about.
const NothingRecorded = "nothing that is recorded changes"

// Replay replays recordings against the rules.
type Replay struct {
	// Transitions counts the writes, and Gaps the gaps.
	Transitions, Gaps int
	// Rules counts how often each rule explained a change.
	Rules map[string]int
	// Divergences are the writes that no rules explain.
	Divergences []string

	pods    map[string]Event
	objects map[string]Event
	// kubelets are the versions of the nodes' kubelets.
	kubelets map[string]string
}

// NewReplay returns a replay of one or more recordings.
func NewReplay() *Replay {
	r := &Replay{Rules: map[string]int{}}
	r.Begin()
	return r
}

// Begin begins another recording.
func (r *Replay) Begin() {
	r.pods, r.objects, r.kubelets = map[string]Event{}, map[string]Event{}, map[string]string{}
}

// Add replays the next event of the recording.
func (r *Replay) Add(e Event) {
	known := r.objects
	var id string
	switch {
	case e.Type == Gap:
		r.gap(e.Kind)
		return
	case e.Kind == "Node" && e.Object != nil:
		r.kubelets[e.Object.Name] = e.Object.KubeletVersion
		return
	case e.Pod != nil:
		known, id = r.pods, string(e.Pod.UID)
	case e.Object != nil:
		id = e.Kind + " " + e.Object.UID
	default:
		return
	}
	before, ok := known[id]
	known[id] = e
	if e.Type == "DELETED" {
		delete(known, id)
	}
	if !ok || e.Type == Listed {
		return
	}
	r.Transitions++
	if e.Pod != nil {
		r.stepPod(before, e)
		return
	}
	name, divergence := StepObject(e.Kind, *before.Object, *e.Object)
	if divergence != nil {
		r.diverges(e, fmt.Sprintf("%s %s/%s: %v", e.Kind, e.Object.Namespace, e.Object.Name, divergence), before.Object, e.Object)
		return
	}
	r.Rules[name]++
}

// gap forgets the objects of a kind: what happened to them is unknown.
func (r *Replay) gap(kind string) {
	r.Gaps++
	if kind == "Pod" {
		clear(r.pods)
	}
	for id, e := range r.objects {
		if e.Kind == kind {
			delete(r.objects, id)
		}
	}
}

// stepPod tries each possible writer. A write that no writer explains is a divergence of the first one.
func (r *Replay) stepPod(before, after Event) {
	writers := writersOf(before.Managers, after.Managers)
	if len(writers) == 0 {
		writers = []Writer{Controllers}
	}
	from, to := before.Pod, after.Pod
	if ignoresContainerRestartPolicy(r.kubelets[to.Spec.NodeName]) {
		from, to = withoutContainerRestartPolicy(from), withoutContainerRestartPolicy(to)
	}
	var first *Divergence
	for _, writer := range writers {
		names, divergence := Step(from, to, writer)
		if divergence == nil {
			if len(names) == 0 {
				names = []string{NothingRecorded}
			}
			for _, name := range names {
				r.Rules[name]++
			}
			return
		}
		if first == nil {
			first = divergence
		}
	}
	r.diverges(after, fmt.Sprintf("pod %s/%s (%s): %v", after.Pod.Namespace, after.Pod.Name, after.Pod.UID, first), summary(before.Pod), summary(after.Pod))
}

// ignoresContainerRestartPolicy reports whether kubelets of this version use the pod's restartPolicy alone. Before Kubernetes
// 1.35, feature gate ContainerRestartRules is off by default (pkg/features/kube_features.go).
func ignoresContainerRestartPolicy(kubelet string) bool {
	v, err := version.ParseGeneric(kubelet)
	return err == nil && v.LessThan(version.MajorMinor(1, 35))
}

// withoutContainerRestartPolicy returns the pod as such a kubelet sees it. Kubelets have known native sidecars for longer.
func withoutContainerRestartPolicy(pod *corev1.Pod) *corev1.Pod {
	seen := pod.DeepCopy()
	for i := range seen.Spec.Containers {
		c := &seen.Spec.Containers[i]
		c.RestartPolicy, c.RestartPolicyRules = nil, nil
	}
	for i := range seen.Spec.InitContainers {
		if c := &seen.Spec.InitContainers[i]; !isRestartable(c) {
			c.RestartPolicy, c.RestartPolicyRules = nil, nil
		}
	}
	return seen
}

func (r *Replay) diverges(e Event, problem string, before, after any) {
	r.Divergences = append(r.Divergences, fmt.Sprintf("%s %s\n  before: %s\n  after:  %s", e.At.Format("2006-01-02T15:04:05.000Z07:00"), problem, text(before), text(after)))
}

// summary leaves out what hardly ever matters.
func summary(pod *corev1.Pod) any {
	return struct {
		ResourceVersion string            `json:"resourceVersion"`
		Deletion        string            `json:"deletionTimestamp,omitempty"`
		Annotations     map[string]string `json:"annotations,omitempty"`
		Spec            corev1.PodSpec    `json:"spec"`
		Status          corev1.PodStatus  `json:"status"`
	}{pod.ResourceVersion, deletion(pod), pod.Annotations, pod.Spec, pod.Status}
}

func deletion(pod *corev1.Pod) string {
	if pod.DeletionTimestamp == nil {
		return ""
	}
	return pod.DeletionTimestamp.String()
}
