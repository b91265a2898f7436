// SPDX-License-Identifier: Apache-2.0

package podmodel

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Writer is who writes to a pod.
type Writer string

// Writers.
const (
	Kubelet        Writer = "kubelet"
	VirtualKubelet Writer = "virtual kubelet"
	Operator       Writer = "operator"
	Kruise         Writer = "OpenKruise"
	// Controllers are the control plane of Kubernetes.
	Controllers Writer = "control plane"
	// Others are users and their tools.
	Others Writer = "others"
)

// Divergence is a change of a pod that no rule explains.
type Divergence struct {
	// Field is the path of the field.
	Field  string
	Writer Writer
	// Before and After are values of the field.
	Before, After string
}

func (d *Divergence) String() string {
	return fmt.Sprintf("no rule lets the %s change %s from %s to %s", d.Writer, d.Field, d.Before, d.After)
}

// Step returns the name of the rule that explains each change of one write, or a divergence.
func Step(before, after *corev1.Pod, writer Writer) ([]string, *Divergence) {
	var names []string
	w := write{before: before, after: after, writer: writer}
	for _, c := range w.changes() {
		i := slices.IndexFunc(rules, func(r rule) bool {
			return r.of == c.of && (len(r.by) == 0 || slices.Contains(r.by, writer)) && (r.explains == nil || r.explains(c))
		})
		if i < 0 {
			return names, &Divergence{Field: c.field, Writer: writer, Before: text(c.values[0]), After: text(c.values[1])}
		}
		names = append(names, rules[i].name)
	}
	return names, nil
}

// write is one write to a pod.
type write struct {
	before, after *corev1.Pod
	writer        Writer
}

// topic is what a rule is about.
type topic int

const (
	ofIdentity topic = iota // what never changes
	ofDeletion
	ofNode
	ofAnnotations
	ofImage
	ofPhase
	ofCondition
	ofStatus // that a container has a status
	ofState  // of a container
	ofRestartCount
	ofReady
)

// change is the change of one field.
type change struct {
	*write
	of     topic
	field  string
	values [2]any

	// Of a container: its spec, whether it is an init container, and its statuses. old is nil before the first.
	container *corev1.Container
	init      bool
	old, new  *corev1.ContainerStatus
	// Of a condition; was is nil before it is added, and is after it is removed.
	was, is *corev1.PodCondition
}

// conditionTypes are the conditions that the rules are about.
var conditionTypes = []corev1.PodConditionType{corev1.PodReady, corev1.AllContainersRestarting, corev1.DisruptionTarget, sidecarTerminated}

func (w *write) changes() []change {
	var all []change
	b, a := w.before, w.after
	if b.UID != a.UID || b.Spec.RestartPolicy != a.Spec.RestartPolicy ||
		!sameContainers(b.Spec.Containers, a.Spec.Containers) || !sameContainers(b.Spec.InitContainers, a.Spec.InitContainers) {
		all = append(all, change{write: w, of: ofIdentity, field: "spec", values: [2]any{b.Spec, a.Spec}})
	}
	if !b.DeletionTimestamp.Equal(a.DeletionTimestamp) {
		all = append(all, change{write: w, of: ofDeletion, field: "metadata.deletionTimestamp", values: [2]any{b.DeletionTimestamp, a.DeletionTimestamp}})
	}
	if b.Spec.NodeName != a.Spec.NodeName {
		all = append(all, change{write: w, of: ofNode, field: "spec.nodeName", values: [2]any{b.Spec.NodeName, a.Spec.NodeName}})
	}
	if !maps.Equal(b.Annotations, a.Annotations) {
		all = append(all, change{write: w, of: ofAnnotations, field: "metadata.annotations", values: [2]any{b.Annotations, a.Annotations}})
	}
	if b.Status.Phase != a.Status.Phase {
		all = append(all, change{write: w, of: ofPhase, field: "status.phase", values: [2]any{b.Status.Phase, a.Status.Phase}})
	}
	all = w.conditions(all)
	for i := range a.Spec.InitContainers {
		all = w.container(all, i, true)
	}
	for i := range a.Spec.Containers {
		all = w.container(all, i, false)
	}
	return all
}

// conditions appends the changes of conditions.
func (w *write) conditions(all []change) []change {
	for _, of := range conditionTypes {
		was, is := conditionOf(w.before, of), conditionOf(w.after, of)
		if was == nil && is == nil || was != nil && is != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		all = append(all, change{write: w, of: ofCondition, field: fmt.Sprintf("status.conditions[%s]", of), values: [2]any{was, is}, was: was, is: is})
	}
	return all
}

// container appends the changes of a container.
func (w *write) container(all []change, i int, init bool) []change {
	b, a := w.before.Spec.Containers, w.after.Spec.Containers
	c := change{write: w, init: init}
	path := "status.containerStatuses"
	if init {
		b, a, path = w.before.Spec.InitContainers, w.after.Spec.InitContainers, "status.initContainerStatuses"
	}
	c.container = &a[i]
	c.old, c.new = statusOf(w.before, a[i].Name, init), statusOf(w.after, a[i].Name, init)
	if i < len(b) && b[i].Image != a[i].Image {
		all = append(all, c.at(ofImage, fmt.Sprintf("spec.containers[%s].image", a[i].Name), b[i].Image, a[i].Image))
	}
	if c.old == nil && c.new == nil {
		return all
	}
	return c.status(all, path+"["+a[i].Name+"]")
}

// at returns the change of a field of the same container.
func (c change) at(of topic, field string, before, after any) change {
	c.of, c.field, c.values = of, field, [2]any{before, after}
	return c
}

// status appends the changes of a container's status.
func (c change) status(all []change, path string) []change {
	switch {
	case c.old == nil || c.new == nil:
		all = append(all, c.at(ofStatus, path, c.old, c.new))
	case !sameState(c.old, c.new):
		all = append(all, c.at(ofState, path+".state", c.old, c.new))
	}
	if c.new == nil {
		return all
	}
	if c.old != nil && c.old.RestartCount != c.new.RestartCount {
		all = append(all, c.at(ofRestartCount, path+".restartCount", c.old.RestartCount, c.new.RestartCount))
	}
	if c.new.Ready && (c.old == nil || !sameState(c.old, c.new)) || c.old != nil && c.old.Ready != c.new.Ready {
		all = append(all, c.at(ofReady, path+".ready", c.old != nil && c.old.Ready, c.new.Ready))
	}
	return all
}

// sameContainers reports whether containers differ at most in their images.
func sameContainers(a, b []corev1.Container) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.Container) bool {
		return x.Name == y.Name && reflect.DeepEqual(x.RestartPolicy, y.RestartPolicy) && reflect.DeepEqual(x.RestartPolicyRules, y.RestartPolicyRules)
	})
}

// sameState reports whether a container runs, waits or has ended as before.
func sameState(before, after *corev1.ContainerStatus) bool {
	b, a := &before.State, &after.State
	switch {
	case before.RestartCount != after.RestartCount || before.ContainerID != after.ContainerID:
		return false
	case b.Running != nil:
		return a.Running != nil
	case b.Terminated != nil:
		return a.Terminated != nil && a.Terminated.ExitCode == b.Terminated.ExitCode && a.Terminated.Reason == b.Terminated.Reason
	default:
		return isWaiting(after) && reasonOf(b.Waiting) == reasonOf(a.Waiting)
	}
}

func reasonOf(waiting *corev1.ContainerStateWaiting) string {
	if waiting == nil {
		return ""
	}
	return waiting.Reason
}

func statusOf(pod *corev1.Pod, name string, init bool) *corev1.ContainerStatus {
	statuses := pod.Status.ContainerStatuses
	if init {
		statuses = pod.Status.InitContainerStatuses
	}
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

func conditionOf(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// text formats the value of a field.
func text(value any) string {
	if s, ok := value.(*corev1.ContainerStatus); ok {
		return describe(s)
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(encoded)
}

// describe returns the state of a container in words.
func describe(s *corev1.ContainerStatus) string {
	if s == nil {
		return "nothing"
	}
	words := "waiting " + reasonOf(s.State.Waiting)
	switch {
	case s.State.Running != nil:
		words = "running"
	case s.State.Terminated != nil:
		words = fmt.Sprintf("terminated %d %s", s.State.Terminated.ExitCode, s.State.Terminated.Reason)
	}
	words = fmt.Sprintf("%s (restarts %d, image %s, id %s", words, s.RestartCount, s.Image, s.ContainerID)
	if last := s.LastTerminationState.Terminated; last != nil {
		words += fmt.Sprintf(", before that terminated %d %s", last.ExitCode, last.Reason)
	}
	return words + ")"
}
