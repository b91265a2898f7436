//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Recorder records every state of the pods, Jobs and CRRs of a namespace.
type Recorder struct {
	mutex   sync.Mutex
	changed chan struct{}
	seen    Seen
}

// Seen holds the objects that a recorder has recorded.
type Seen struct {
	jobs map[string]*batchv1.Job
	pods map[types.UID]*PodRecord
	crrs map[types.UID]*CRR
}

// PodRecord is the history of one pod.
type PodRecord struct {
	// Pod is its newest state, even after its deletion.
	Pod *corev1.Pod
	// Phases are its phases, each with the time of the first event that had it.
	Phases []PhaseChange
	// States describe its phases and container states, oldest first.
	States []string
	// Deleted is true when the pod is gone.
	Deleted bool
}

// PhaseChange is one phase of a pod.
type PhaseChange struct {
	Phase corev1.PodPhase
	At    time.Time
}

// CRR is a recorded ContainerRecreateRequest.
type CRR struct {
	Name string
	Pod  string
	// Containers are the names of its containers, sorted.
	Containers []string
	// Created is its creationTimestamp.
	Created time.Time
}

// startRecorder records until the test ends. It also records kinds that the cluster serves only later.
func startRecorder(t *testing.T, config *rest.Config, namespace string) *Recorder {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	recorder := &Recorder{changed: make(chan struct{}), seen: Seen{
		jobs: map[string]*batchv1.Job{}, pods: map[types.UID]*PodRecord{}, crrs: map[types.UID]*CRR{},
	}}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	for resource, observe := range map[schema.GroupVersionResource]func(*unstructured.Unstructured, bool) error{
		corev1.SchemeGroupVersion.WithResource("pods"):               recorder.seen.observePod,
		batchv1.SchemeGroupVersion.WithResource("jobs"):              recorder.seen.observeJob,
		KruiseGroupVersion.WithResource("containerrecreaterequests"): recorder.seen.observeCRR,
	} {
		record := func(object any, deleted bool) {
			if gone, missed := object.(cache.DeletedFinalStateUnknown); missed {
				object = gone.Obj
			}
			recorder.mutex.Lock()
			defer recorder.mutex.Unlock()
			if err := observe(object.(*unstructured.Unstructured), deleted); err != nil {
				t.Errorf("Read one of the %s: %v", resource.Resource, err)
			}
			close(recorder.changed)
			recorder.changed = make(chan struct{})
		}
		if _, err := factory.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { record(object, false) },
			UpdateFunc: func(_, object any) { record(object, false) },
			DeleteFunc: func(object any) { record(object, true) },
		}); err != nil {
			t.Fatal(err)
		}
	}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown) // an event after the test's end would panic
	return recorder
}

// wait runs the check after each change until it returns nil or the context ends, and returns its last error.
func (r *Recorder) wait(ctx context.Context, check func(Seen) error) error {
	for {
		r.mutex.Lock()
		err, changed := check(r.seen), r.changed
		r.mutex.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-changed:
		}
	}
}

// Look calls the function with what was recorded so far. The function must not retain it.
func (r *Recorder) Look(look func(Seen)) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	look(r.seen)
}

// Job returns the newest state of the Job, or nil.
func (s Seen) Job(name string) *batchv1.Job { return s.jobs[name] }

// Pods returns the pods that the controller owns and the pod of that name, oldest first.
func (s Seen) Pods(owner string) []*PodRecord {
	return slices.DeleteFunc(s.AllPods(), func(record *PodRecord) bool {
		controller := metav1.GetControllerOf(record.Pod)
		return record.Pod.Name != owner && (controller == nil || controller.Name != owner)
	})
}

// AllPods returns every pod, oldest first.
func (s Seen) AllPods() []*PodRecord {
	return slices.SortedFunc(maps.Values(s.pods), func(a, b *PodRecord) int {
		return cmp.Or(a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time), strings.Compare(a.Pod.Name, b.Pod.Name))
	})
}

// CRRs returns the CRRs of the pod, including deleted ones, oldest first.
func (s Seen) CRRs(pod string) []*CRR {
	var crrs []*CRR
	for _, crr := range s.crrs {
		if crr.Pod == pod {
			crrs = append(crrs, crr)
		}
	}
	slices.SortFunc(crrs, func(a, b *CRR) int { return a.Created.Compare(b.Created) })
	return crrs
}

func (s Seen) observePod(object *unstructured.Unstructured, deleted bool) error {
	pod, now := &corev1.Pod{}, time.Now()
	record := s.pods[object.GetUID()]
	if record == nil {
		record = &PodRecord{}
		s.pods[object.GetUID()] = record
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod)
	record.Pod, record.Deleted = pod, deleted
	if last := len(record.Phases) - 1; last < 0 || record.Phases[last].Phase != pod.Status.Phase {
		record.Phases = append(record.Phases, PhaseChange{Phase: pod.Status.Phase, At: now})
	}
	record.States = append(record.States, fmt.Sprintf("%.3fs %s: %s", now.Sub(record.Phases[0].At).Seconds(), pod.Status.Phase, describeContainers(pod)))
	return err
}

func (s Seen) observeJob(object *unstructured.Unstructured, _ bool) error {
	job := &batchv1.Job{}
	s.jobs[object.GetName()] = job
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, job)
}

func (s Seen) observeCRR(object *unstructured.Unstructured, _ bool) error {
	crr := &CRR{Name: object.GetName(), Created: object.GetCreationTimestamp().Time}
	s.crrs[object.GetUID()] = crr
	crr.Pod, _, _ = unstructured.NestedString(object.Object, "spec", "podName")
	containers, _, err := unstructured.NestedSlice(object.Object, "spec", "containers")
	for _, container := range containers {
		if fields, ok := container.(map[string]any); ok {
			crr.Containers = append(crr.Containers, fmt.Sprint(fields["name"]))
		}
	}
	slices.Sort(crr.Containers)
	return err
}

// Finished reports whether the phase is terminal.
func (p *PodRecord) Finished() bool { return isTerminal(p.Pod.Status.Phase) }

// PhaseLog returns the phases with the seconds since the first.
func (p *PodRecord) PhaseLog() string {
	var log []string
	for _, change := range p.Phases {
		log = append(log, fmt.Sprintf("%s %.1fs", change.Phase, change.At.Sub(p.Phases[0].At).Seconds()))
	}
	return strings.Join(log, " -> ")
}

// Container returns the newest status of a regular container, or nil.
func (p *PodRecord) Container(name string) *corev1.ContainerStatus {
	for i := range p.Pod.Status.ContainerStatuses {
		if p.Pod.Status.ContainerStatuses[i].Name == name {
			return &p.Pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// Image returns a regular container's image in the pod's spec.
func (p *PodRecord) Image(container string) string {
	for i := range p.Pod.Spec.Containers {
		if p.Pod.Spec.Containers[i].Name == container {
			return p.Pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// Running returns the names of the running containers, including native sidecars.
func (p *PodRecord) Running() []string {
	var running []string
	for _, status := range slices.Concat(p.Pod.Status.InitContainerStatuses, p.Pod.Status.ContainerStatuses) {
		if status.State.Running != nil {
			running = append(running, status.Name)
		}
	}
	return running
}

func isTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
