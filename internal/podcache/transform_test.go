// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// fullPod has a value in every field that is kept, and in many that are not.
func fullPod() *corev1.Pod {
	env := []corev1.EnvVar{
		{Name: "SECRET", Value: "hunter2"},
		{Name: "PATH", Value: "/opt/bin"},
		{Name: v1alpha1.EnvTerminate, Value: "true"},
		{Name: v1alpha1.EnvIgnoreExitCode, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	rules := []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	then := metav1.NewTime(podtest.Noon)
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "job-1", Namespace: "batch", UID: "4a1b", ResourceVersion: "17", Generation: 3, GenerateName: "job-",
			CreationTimestamp: then, DeletionTimestamp: &then, DeletionGracePeriodSeconds: ptr.To[int64](30),
			Labels: map[string]string{"team": "etl"},
			Annotations: map[string]string{
				v1alpha1.AnnotationImageSwap: "swap", v1alpha1.AnnotationPodPhase: "phase", "example.com/large": "value",
				corev1.MirrorPodAnnotationKey: "5e8ff9bf55ba3508199d22e984129be6",
			},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job"}},
			Finalizers:      []string{"batch.kubernetes.io/job-tracking"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyOnFailure, TerminationGracePeriodSeconds: ptr.To[int64](5),
			ServiceAccountName: "etl", Volumes: []corev1.Volume{{Name: "data"}}, Hostname: "host",
			InitContainers: []corev1.Container{
				{Name: "setup", Image: "setup:v1"},
				{Name: "native", Image: "native:v1", Resources: limits, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{
				{Name: "main", Image: "main:v1", Args: []string{"run"}, Resources: limits, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever), RestartPolicyRules: rules},
				{
					Name: "proxy", Image: "proxy:v1", Command: []string{"envoy", "-c", "/data/envoy.yaml"}, WorkingDir: "/data", Env: env,
					VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "tools", MountPath: "/opt/bin", ReadOnly: true}},
				},
				{Name: "tunnel", Image: "tunnel:v1"},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.7", HostIP: "10.0.0.1", StartTime: &then, QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{
				{Type: corev1.ContainersReady, Status: corev1.ConditionFalse},
				{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse, Reason: "why", LastTransitionTime: then},
				{Type: v1alpha1.PodConditionSidecarTerminated, Status: corev1.ConditionTrue, Message: "long"},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted", Message: "long", LastTransitionTime: then},
			},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "setup"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{
					Name: "main", ContainerID: "containerd://1", Image: "main:v1", ImageID: "sha256:1",
					State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
						ExitCode: 0, FinishedAt: then, StartedAt: then, Reason: "Completed", Message: "long", ContainerID: "containerd://1",
					}},
				},
				{
					Name: "proxy", ContainerID: "containerd://2", RestartCount: 2, Ready: true, Started: ptr.To(true),
					State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: then}},
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
				},
				{
					Name:  "tunnel",
					State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "long"}},
				},
			},
		},
	}
}

func TestTrimPodKeepsFieldsThatAreRead(t *testing.T) {
	pod := fullPod()
	then := metav1.NewTime(podtest.Noon)
	want := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: "job-1", Namespace: "batch", UID: "4a1b", ResourceVersion: "17", CreationTimestamp: then, DeletionTimestamp: &then,
			Labels: map[string]string{"team": "etl"},
			Annotations: map[string]string{
				v1alpha1.AnnotationImageSwap: "swap", v1alpha1.AnnotationPodPhase: "phase", corev1.MirrorPodAnnotationKey: "",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyOnFailure, TerminationGracePeriodSeconds: ptr.To[int64](5),
			InitContainers: []corev1.Container{{Name: "native", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
			Containers: []corev1.Container{
				{Name: "main", Image: "main:v1", RestartPolicy: pod.Spec.Containers[0].RestartPolicy, RestartPolicyRules: pod.Spec.Containers[0].RestartPolicyRules},
				{
					Name: "proxy", Image: "proxy:v1", Command: []string{"envoy"}, Env: []corev1.EnvVar{
						{Name: "PATH"}, {Name: v1alpha1.EnvTerminate, Value: "true"},
						{Name: v1alpha1.EnvIgnoreExitCode, ValueFrom: &corev1.EnvVarSource{}},
					},
				},
				{Name: "tunnel", Image: "tunnel:v1"},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse},
				{Type: v1alpha1.PodConditionSidecarTerminated, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "main", ContainerID: someContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: then, FinishedAt: then}}},
				{Name: "proxy", ContainerID: someContainer, RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: then}}},
				{Name: "tunnel", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
			},
		},
	}
	got := TrimPod(pod)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trimmed pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(fullPod(), pod); diff != "" {
		t.Errorf("the pod itself was changed (-before +after):\n%s", diff)
	}
	again := TrimPod(got)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("trimming twice is not trimming once (-once +twice):\n%s", diff)
	}
}

// sidecarRuns sets the sidecar's command, in a pod whose mains are done.
func sidecarRuns(word string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[1].Command = []string{word, "-v"}
		p.Spec.Containers, p.Status.ContainerStatuses = p.Spec.Containers[:2], p.Status.ContainerStatuses[:2]
	}
}

// Next must decide the same for a pod as for the trimmed pod.
func TestTrimmedPodHasSameDecision(t *testing.T) {
	full := func(change ...func(*corev1.Pod)) *corev1.Pod {
		pod := fullPod()
		pod.DeletionTimestamp = nil
		pod.Annotations = nil
		for _, c := range change {
			c(pod)
		}
		return pod
	}
	for name, pod := range map[string]*corev1.Pod{
		"a deleted pod":         fullPod(),
		"a pod with every part": full(),
		"a plain pod":           podtest.New(),
		"its main is done":      podtest.New(podtest.MainDone),
		"its main has failed":   podtest.New(func(p *corev1.Pod) { p.Status.ContainerStatuses[0] = podtest.Ended("main", 1) }),
		"its sidecar is done":   podtest.New(podtest.MainDone, podtest.SidecarDone),
		"it has finished":       podtest.New(podtest.MainDone, podtest.SidecarDone, podtest.Succeeded),
		"its phase is written":  podtest.New(podtest.MainDone, podtest.Succeeded),
		"the kubelet knows its phase": podtest.New(podtest.MainDone, podtest.Succeeded, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"}}
		}),
		"its phase is written, not ready before": podtest.New(podtest.MainDone, podtest.Succeeded, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"}}
		}),
		"it mirrors a static pod": podtest.New(podtest.MainDone, func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "5e8ff9bf55ba3508199d22e984129be6"}
		}),
		"it has no node":        podtest.New(func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		"it is never restarted": full(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }),
		"a main is restarted for its exit code": full(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated.ExitCode = 42
		}),
		"all containers are restarting": full(func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionTrue }),
		"a sidecar may restart the others": full(func(p *corev1.Pod) {
			p.Spec.Containers[1].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
			p.Spec.Containers[1].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
		}),
		"a volume hides the command":  full(sidecarRuns("/opt/bin/envoy")),
		"no image has the command":    full(sidecarRuns("/app/server")),
		"the command is not absolute": full(sidecarRuns("./server")),
		"the command is in PATH":      full(sidecarRuns("sh")),
		"its only sidecar is native": full(func(p *corev1.Pod) {
			p.Spec.Containers, p.Status.ContainerStatuses = p.Spec.Containers[:1], p.Status.ContainerStatuses[:1]
		}),
		"it has no status yet": full(func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }),
	} {
		t.Run(name, func(t *testing.T) {
			trimmed := TrimPod(pod.DeepCopy())
			policies := []resolve.Policy{podtest.Policy("mesh", "proxy", "native")}
			policies[0].Spec.Mode = v1alpha1.ModeImage
			options := resolve.Options{Image: "quick-exit:v1"}
			want := resolve.Resolve(pod, policies, options)
			got := resolve.Resolve(trimmed.(*corev1.Pod), policies, options)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("resolution (-full +trimmed):\n%s", diff)
			}
			written := plan.Attempt{Mode: v1alpha1.ModePodPhase, For: v1alpha1.ModeCRR, Started: podtest.Noon}
			for _, capabilities := range []plan.Capabilities{
				{EnabledModes: podtest.Modes(plan.PodPhaseDisabled)}, {EnabledModes: podtest.Modes(plan.PodPhaseDisabled), CRRServed: true},
				{EnabledModes: podtest.Modes(plan.PodPhaseEnabled)}, {EnabledModes: podtest.Modes(plan.PodPhaseLastResort), CRRServed: true, MaxGracePeriod: time.Second},
			} {
				for _, now := range []time.Time{podtest.Noon.Add(time.Second), podtest.Noon.Add(90 * time.Second), podtest.Noon.Add(time.Hour)} {
					snapshot := plan.Snapshot{Pod: pod, View: want.Enforced, Node: plan.NodeReal, Capabilities: capabilities}
					if plan.HasTerminalPhase(pod) {
						snapshot.Attempts = []plan.Attempt{written}
					}
					wanted := plan.Next(snapshot, now)
					snapshot.Pod, snapshot.View = trimmed.(*corev1.Pod), got.Enforced
					if diff := cmp.Diff(wanted, plan.Next(snapshot, now)); diff != "" {
						t.Errorf("decision with %+v at %s (-full +trimmed):\n%s", capabilities, now, diff)
					}
				}
			}
		})
	}
}

// A user who may write to pods must not be able to fill the operator's memory by annotations.
func TestTrimPodCutsLongRecords(t *testing.T) {
	long := strings.Repeat(" ", 200<<10)
	pod := podtest.New(func(p *corev1.Pod) {
		p.Annotations = map[string]string{
			v1alpha1.AnnotationImageSwap: "{}" + long, v1alpha1.AnnotationPodPhase: "{}" + long, v1alpha1.AnnotationPhaseGuard: "Enabled" + long,
		}
	})
	trimmed := TrimPod(pod)
	kept := trimmed.(*corev1.Pod)
	for annotation, value := range kept.Annotations {
		if len(value) > 4<<10 {
			t.Errorf("%d bytes are kept of %s", len(value), annotation)
		}
	}
	for name, observer := range map[string]observe.Observer{"swaps": &image.Terminator{}, "phase": &podphase.Terminator{}} {
		_, full := observer.Observe(t.Context(), pod)
		_, part := observer.Observe(t.Context(), kept)
		if diff := cmp.Diff(message(full), message(part)); diff != "" || !errors.Is(full, terminator.ErrInvalidAnnotation) {
			t.Errorf("%s: the error is %v (-full +trimmed):\n%s", name, full, diff)
		}
	}
	again := TrimPod(kept)
	if diff := cmp.Diff(trimmed, again); diff != "" {
		t.Errorf("trimming twice is not trimming once (-once +twice):\n%s", diff)
	}
}

func TestTrimPodKeepsContainerLists(t *testing.T) {
	limit, long := resolve.MaxListBytes, strings.Repeat("n", 300)
	for name, tc := range map[string]struct {
		annotations, want map[string]string
	}{
		"a list":                              {map[string]string{listKey: "main,proxy", "example.com/other": "other"}, map[string]string{listKey: "main,proxy"}},
		"several lists":                       {map[string]string{listKey: " main ", "default-container": "proxy"}, map[string]string{listKey: " main ", "default-container": "proxy"}},
		"a list with a native sidecar":        {map[string]string{listKey: "native,main"}, map[string]string{listKey: "native,main"}},
		"an invalid list of a container":      {map[string]string{listKey: "main,mian"}, map[string]string{listKey: "main,mian"}},
		"an invalid list of no container":     {map[string]string{listKey: "mian,main"}, nil},
		"a list that starts with setup":       {map[string]string{listKey: "setup"}, nil},
		"an empty value":                      {map[string]string{listKey: ""}, nil},
		"the longest list":                    {map[string]string{listKey: "main" + strings.Repeat(" ", limit-4)}, map[string]string{listKey: "main" + strings.Repeat(" ", limit-4)}},
		"a longer list is cut":                {map[string]string{listKey: "main" + strings.Repeat(" ", 200<<10)}, map[string]string{listKey: "main" + strings.Repeat(" ", limit-3)}},
		"a name behind too many spaces":       {map[string]string{listKey: strings.Repeat(" ", limit+1) + "main"}, nil},
		"as many bytes as possible":           {manyLists(8, 508), manyLists(8, 508)},
		"too many bytes":                      {manyLists(8, 509), nil},
		"too many keys":                       {map[string]string{long: "main", listKey: "main" + strings.Repeat(",main", 500), "x": "main" + strings.Repeat(",main", 300)}, nil},
		"the operator's own annotations stay": {map[string]string{listKey: "main", v1alpha1.AnnotationPodPhase: "main,"}, map[string]string{listKey: "main", v1alpha1.AnnotationPodPhase: "main,"}},
	} {
		t.Run(name, func(t *testing.T) {
			newPod := func() *corev1.Pod {
				return podtest.New(func(p *corev1.Pod) {
					p.Annotations = maps.Clone(tc.annotations)
					p.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "native", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
				})
			}
			pod := newPod()
			trimmed := TrimPod(pod).(*corev1.Pod)
			if diff := cmp.Diff(tc.want, trimmed.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(newPod(), pod); diff != "" {
				t.Errorf("the pod was changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(trimmed, TrimPod(trimmed)); diff != "" {
				t.Errorf("trimming twice is not trimming once (-once +twice):\n%s", diff)
			}
		})
	}
}

// manyLists returns lists with keys of four characters and values of this length.
func manyLists(count, length int) map[string]string {
	lists := map[string]string{}
	for i := range count {
		lists[fmt.Sprintf("k%03d", i)] = "main" + strings.Repeat(" ", length-4)
	}
	return lists
}

// A shared value must not change when another pod with the same list has annotations of its own.
func TestSharedListsDoNotChange(t *testing.T) {
	list := map[string]string{listKey: "main"}
	listing := func(p *corev1.Pod) { p.Annotations = maps.Clone(list) }
	first := TrimPod(podtest.New(listing)).(*corev1.Pod)
	TrimPod(podtest.New(listing, func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationPhaseGuard] = "Enabled" }))
	second := TrimPod(podtest.New(listing)).(*corev1.Pod)
	if diff := cmp.Diff([]map[string]string{list, list}, []map[string]string{first.Annotations, second.Annotations}); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	before := podtest.ReachableBytes()
	const pods = 1000
	kept := make([]map[string]string, pods)
	for i := range kept {
		kept[i] = TrimPod(podtest.New(listing)).(*corev1.Pod).Annotations
	}
	if each := (podtest.ReachableBytes() - before) / pods; each > 16 {
		t.Errorf("the list of a pod takes %d bytes, want it shared", each)
	}
	runtime.KeepAlive(kept)
}

func TestTrimmedNodeHasSameKind(t *testing.T) {
	marks := plan.DefaultNodeKindRules()
	virtual := &marks.Virtual
	virtual.Labels = append(virtual.Labels, plan.LabelMatch{Key: "example.com/virtual"}, plan.LabelMatch{Key: "kind", Value: "eci"})
	virtual.Taints = append(virtual.Taints, "example.com/no-kubelet")
	marks.Daemonless.Taints = append(marks.Daemonless.Taints, "example.com/no-daemons")
	taint := func(key string) corev1.NodeSpec {
		return corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "other"}, {Key: key, Effect: corev1.TaintEffectNoSchedule}}}
	}
	for name, tc := range map[string]struct {
		labels map[string]string
		spec   corev1.NodeSpec
		want   plan.NodeKind
	}{
		"a node without a mark":                     {nil, corev1.NodeSpec{}, plan.NodeReal},
		"a node with other marks":                   {map[string]string{"type": "kubelet"}, taint("another"), plan.NodeReal},
		"a virtual kubelet by its label":            {map[string]string{"type": "virtual-kubelet"}, corev1.NodeSpec{}, plan.NodeVirtual},
		"a virtual kubelet by its taint":            {nil, taint("virtual-kubelet.io/provider"), plan.NodeVirtual},
		"a node of Fargate":                         {map[string]string{"eks.amazonaws.com/compute-type": "fargate"}, corev1.NodeSpec{}, plan.NodeDaemonless},
		"a further label with any value":            {map[string]string{"example.com/virtual": ""}, corev1.NodeSpec{}, plan.NodeVirtual},
		"a further label with its value":            {map[string]string{"kind": "eci"}, corev1.NodeSpec{}, plan.NodeVirtual},
		"a further label, another value":            {map[string]string{"kind": "ecs"}, corev1.NodeSpec{}, plan.NodeReal},
		"a further taint":                           {nil, taint("example.com/no-kubelet"), plan.NodeVirtual},
		"a further taint of nodes without a daemon": {nil, taint("example.com/no-daemons"), plan.NodeDaemonless},
		"a taint that has a label's name":           {nil, taint("example.com/virtual"), plan.NodeReal},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n", ResourceVersion: "5", Labels: tc.labels, Annotations: map[string]string{"a": "b"}},
				Spec:       tc.spec,
				Status: corev1.NodeStatus{
					Images:   []corev1.ContainerImage{{SizeBytes: 1}},
					NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", KernelVersion: "6.1"},
					Conditions: []corev1.NodeCondition{
						{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
						{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.NewTime(podtest.Noon)},
					},
				},
			}
			trimmed := trimNode(node)
			want := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n", ResourceVersion: "5", Labels: tc.labels},
				Spec:       corev1.NodeSpec{Taints: tc.spec.Taints},
				Status: corev1.NodeStatus{
					NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.3"},
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(podtest.Noon)}},
				},
			}
			if diff := cmp.Diff(want, trimmed); diff != "" {
				t.Errorf("trimmed node (-want +got):\n%s", diff)
			}
			if full, got := marks.Classify(node), marks.Classify(trimmed.(*corev1.Node)); full != tc.want || got != tc.want {
				t.Errorf("the node is %s and %s when trimmed, want %s", full, got, tc.want)
			}
		})
	}
}

// Nodes write the version of their kubelet.
func TestTrimmedNodeHasNoLongVersion(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{
		NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: strings.Repeat("v", 300)},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
	}}
	if diff := cmp.Diff(&corev1.Node{}, trimNode(node)); diff != "" {
		t.Errorf("trimmed node (-want +got):\n%s", diff)
	}
}

func TestTrimLeavesOtherObjects(t *testing.T) {
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "batch/job-1"}
	for name, trim := range map[string]func(any) any{"pods": TrimPod, "nodes": trimNode} {
		if got := trim(tombstone); got != any(tombstone) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

var trimmedPod any

func BenchmarkTrimPod(b *testing.B) {
	pod := podtest.OfJob()
	b.ReportAllocs()
	for b.Loop() {
		trimmedPod = TrimPod(pod)
	}
}
