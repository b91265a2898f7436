// SPDX-License-Identifier: Apache-2.0

package podmodel_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/podmodel"
)

// recorded returns the events of the recording. Its pods are a (the operator writes its phase), b (its main container restarts and
// its sidecar's image is swapped), c (its main container fails, with a native sidecar) and d (its events have a gap).
func recorded(t *testing.T) []podmodel.Event {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "recording.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var events []podmodel.Event
	for decoder := json.NewDecoder(file); ; {
		var event podmodel.Event
		switch err := decoder.Decode(&event); {
		case errors.Is(err, io.EOF):
			return events
		case err != nil:
			t.Fatal(err)
		}
		events = append(events, event)
	}
}

func replay(events []podmodel.Event) *podmodel.Replay {
	r := podmodel.NewReplay()
	for _, event := range events {
		r.Add(event)
	}
	return r
}

func TestReplayRecording(t *testing.T) {
	r := replay(recorded(t))
	if len(r.Divergences) > 0 {
		t.Error(strings.Join(r.Divergences, "\n"))
	}
	if r.Transitions != 38 || r.Gaps != 4 {
		t.Errorf("%d transitions and %d gaps", r.Transitions, r.Gaps)
	}
	for _, name := range []string{
		"the operator writes the phase", "the operator swaps an image", "a container restarts by its policy", "a container restarts with another image",
		"a container failed: Failed", "all containers succeeded: Succeeded", "the pod is being deleted, or sooner",
		"a ContainerRecreateRequest goes on to Completed", "a Job goes on to Complete", podmodel.NothingRecorded,
	} {
		if r.Rules[name] == 0 {
			t.Errorf("no change is explained by %q", name)
		}
	}
}

// What happened in a gap is unknown.
func TestReplayForgetsInGaps(t *testing.T) {
	events := slices.DeleteFunc(recorded(t), func(e podmodel.Event) bool { return e.Type == podmodel.Gap })
	for i := range events {
		if events[i].Type == podmodel.Listed {
			events[i].Type = "MODIFIED"
			events[i].Pod.Status.Phase = corev1.PodFailed
		}
	}
	if r := replay(events); len(r.Divergences) == 0 {
		t.Error("without the gap, a phase that disagrees with the exit code is no divergence")
	}
}

// violation changes the event of a pod with this number, and all later ones of this pod. The last event of each pod occurs twice.
type violation struct {
	pod   string
	event int
	// first changes only this event, and rest this one and the later ones.
	first, rest func(*podmodel.Event)
	// field is in the first divergence.
	field string
}

// by makes the event a write of this manager alone.
func by(manager, subresource string) func(*podmodel.Event) {
	return func(e *podmodel.Event) {
		e.Managers = []podmodel.Manager{{Name: manager, Subresource: subresource, Time: metav1.NewTime(e.At.Add(time.Hour))}}
	}
}

// repeatLast inserts a write after the last one of a pod that changes nothing.
func repeatLast(events []podmodel.Event, pod string) []podmodel.Event {
	for i, event := range slices.Backward(events) {
		if event.Pod != nil && event.Pod.Name == pod {
			event.Pod = event.Pod.DeepCopy()
			return slices.Insert(events, i+1, event)
		}
	}
	return events
}

func status(e *podmodel.Event, container string) *corev1.ContainerStatus {
	for i := range e.Pod.Status.ContainerStatuses {
		if s := &e.Pod.Status.ContainerStatuses[i]; s.Name == container {
			return s
		}
	}
	return nil
}

func runAgain(container string, count int32) func(*podmodel.Event) {
	return func(e *podmodel.Event) {
		s := status(e, container)
		s.RestartCount += count
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(e.At)}}
	}
}

func TestReplayFindsViolations(t *testing.T) {
	for name, v := range map[string]violation{
		"the kubelet reverts a phase that it has reported": {
			pod: "a", event: 7, first: func(e *podmodel.Event) { e.Pod.Status.Phase = corev1.PodRunning }, field: "status.phase",
		},
		"the kubelet reverts a phase that it computed": {
			pod: "b", event: 13, first: func(e *podmodel.Event) { e.Pod.Status.Phase = corev1.PodRunning }, field: "status.phase",
		},
		"a container that ended under Never runs again": {pod: "a", event: 5, rest: runAgain("main", 1), field: "[main].state"},
		"a container that ended runs again with the same restart count": {
			pod: "b", event: 5, rest: func(e *podmodel.Event) { status(e, "main").RestartCount = 0 }, field: "[main].state",
		},
		"a restart count decreases": {
			pod: "b", event: 8, rest: func(e *podmodel.Event) { status(e, "main").RestartCount = 0 }, field: "[main].restartCount",
		},
		"an exit code changes": {
			pod: "c", event: 8, rest: func(e *podmodel.Event) { status(e, "main").State.Terminated.ExitCode = 5 }, field: "[main].state",
		},
		"a deletion is undone": {
			pod: "a", event: 10, rest: func(e *podmodel.Event) { e.Pod.DeletionTimestamp = nil }, field: "deletionTimestamp",
		},
		"a deletion is put off": {
			pod: "a", event: 10, rest: func(e *podmodel.Event) { e.Pod.DeletionTimestamp.Time = e.At.Add(time.Hour) }, field: "deletionTimestamp",
		},
		"a phase disagrees with an exit code": {
			pod: "c", event: 8, rest: func(e *podmodel.Event) { e.Pod.Status.Phase = corev1.PodSucceeded }, field: "status.phase",
		},
		"a phase is terminal while a container may restart": {
			pod: "b", event: 6, first: func(e *podmodel.Event) { e.Pod.Status.Phase = corev1.PodFailed }, field: "status.phase",
		},
		"a container starts after the pod has finished": {pod: "b", event: 13, rest: runAgain("proxy", 1), field: "[proxy].state"},
		"a restartPolicy changes": {
			pod: "d", event: 2, rest: func(e *podmodel.Event) { e.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }, field: "spec",
		},
		"a sidecar starts in a pod that the kubelet has finished": {pod: "a", event: 7, rest: runAgain("proxy", 1), field: "[proxy].state"},
		"the kubelet changes an image": {
			pod: "b", event: 10, first: func(e *podmodel.Event) {
				by("kubelet", "status")(e)
				e.Pod.Annotations = nil
			}, field: "[proxy].image",
		},
		"the operator swaps an image without a record": {
			pod: "b", event: 10, first: func(e *podmodel.Event) { e.Pod.Annotations = nil }, field: "[proxy].image",
		},
		"the operator writes a phase without a record": {
			pod: "a", event: 5, first: func(e *podmodel.Event) { delete(e.Pod.Annotations, v1alpha1.AnnotationPodPhase) }, field: "status.phase",
		},
		"the operator writes the state of a container": {
			pod: "a", event: 5, first: func(e *podmodel.Event) { status(e, "proxy").RestartCount = 1 }, field: "[proxy].state",
		},
		"the kubelet removes the operator's annotations": {
			pod: "a", event: 6, first: func(e *podmodel.Event) { e.Pod.Annotations = nil }, field: "metadata.annotations",
		},
		"the status of a container vanishes": {
			pod: "a", event: 7, rest: func(e *podmodel.Event) { e.Pod.Status.ContainerStatuses = e.Pod.Status.ContainerStatuses[:1] }, field: "containerStatuses[proxy]",
		},
		"a container that ended is ready": {
			pod: "a", event: 7, rest: func(e *podmodel.Event) { status(e, "proxy").Ready = true }, field: "[proxy].ready",
		},
		"a pod is ready while a container is not": {
			pod: "a", event: 4, first: func(e *podmodel.Event) { e.Pod.Status.Conditions[0].Status = corev1.ConditionTrue }, field: "conditions[Ready]",
		},
		"a pod moves to another node": {
			pod: "a", event: 2, rest: func(e *podmodel.Event) { e.Pod.Spec.NodeName = "node-2" }, field: "spec.nodeName",
		},
	} {
		t.Run(name, func(t *testing.T) {
			events, n := repeatLast(recorded(t), v.pod), -1
			for i := range events {
				e := &events[i]
				if e.Pod == nil || e.Pod.Name != v.pod {
					continue
				}
				n++
				if n == v.event && v.first != nil {
					v.first(e)
				}
				if n >= v.event && v.rest != nil {
					v.rest(e)
				}
			}
			r := replay(events)
			if len(r.Divergences) == 0 {
				t.Fatal("no divergence")
			}
			if first, _, _ := strings.Cut(r.Divergences[0], "\n"); !strings.Contains(first, "pod batch/"+v.pod) || !strings.Contains(first, v.field+" ") {
				t.Errorf("the first divergence is not about %s: %s", v.field, first)
			}
		})
	}
}

// The main container of pod c fails and is not restarted, although it has restartPolicy OnFailure. That is right for kubelets that
// ignore the field. The native sidecar stays one.
func TestReplayKnowsWhichKubeletsIgnoreContainerRestartPolicy(t *testing.T) {
	for name, test := range map[string]struct {
		version  string
		diverges bool
	}{
		"1.34":    {"v1.34.10", false},
		"1.35":    {"v1.35.0", true},
		"unknown": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			events := recorded(t)
			for i := range events {
				if pod := events[i].Pod; pod != nil && pod.Name == "c" {
					pod.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyOnFailure)
				}
			}
			node := &podmodel.Object{Name: "node-1", KubeletVersion: test.version}
			r := replay(slices.Insert(events, 0, podmodel.Event{Type: podmodel.Listed, Kind: "Node", Object: node}))
			if diverges := len(r.Divergences) > 0; diverges != test.diverges {
				t.Errorf("divergences: %s", strings.Join(r.Divergences, "\n"))
			}
		})
	}
}

func TestReplayFindsViolationsOfObjects(t *testing.T) {
	for name, change := range map[string]func(*podmodel.Object){
		"a Job loses its end":       func(o *podmodel.Object) { o.Phase = "" },
		"a Job loses counted pods":  func(o *podmodel.Object) { o.Succeeded = 0 },
		"a Job fails after success": func(o *podmodel.Object) { o.Phase = "Failed" },
	} {
		t.Run(name, func(t *testing.T) {
			events := recorded(t)
			last := slices.IndexFunc(events, func(e podmodel.Event) bool { return e.Object != nil && e.Object.Phase == "Complete" })
			again := *events[last].Object
			change(&again)
			events = append(events, podmodel.Event{At: events[last].At, Type: "MODIFIED", Kind: "Job", Object: &again})
			if r := replay(events); len(r.Divergences) != 1 {
				t.Errorf("%d divergences: %s", len(r.Divergences), strings.Join(r.Divergences, "\n"))
			}
		})
	}
}
