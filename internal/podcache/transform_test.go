// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/image"
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
				v1alpha1.AnnotationImageSwap: "swap", v1alpha1.AnnotationIgnoredExitCodes: "proxy,tunnel", v1alpha1.AnnotationEnd: "PodPhase/4a1b",
				v1alpha1.AnnotationMainContainers: "Running/4a1b", "example.com/large": "value",
				corev1.MirrorPodAnnotationKey: "5e8ff9bf55ba3508199d22e984129be6",
			},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job"}},
			Finalizers:      []string{"batch.kubernetes.io/job-tracking"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyOnFailure, TerminationGracePeriodSeconds: ptr.To[int64](5),
			ActiveDeadlineSeconds: ptr.To[int64](600), ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}, {Name: "nic"}},
			ServiceAccountName: "etl", Volumes: []corev1.Volume{{Name: "data"}}, Hostname: "host",
			InitContainers: []corev1.Container{
				{Name: "setup", Image: "setup:v1"},
				{Name: "retry", Image: "retry:v1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever), RestartPolicyRules: rules},
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
			Phase: corev1.PodRunning, Reason: "Evicted", Message: "long", PodIP: "10.0.0.7", HostIP: "10.0.0.1", StartTime: &then, QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{
				{Type: corev1.ContainersReady, Status: corev1.ConditionFalse},
				{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse, Reason: "why", LastTransitionTime: then},
				{Type: v1alpha1.PodConditionSidecarTerminated, Status: corev1.ConditionFalse, Message: "long"},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted", Message: "long", LastTransitionTime: then},
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "long", LastTransitionTime: then},
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

func TestTrimKeepsFieldsThatAreRead(t *testing.T) {
	pod := fullPod()
	then := metav1.NewTime(podtest.Noon)
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "job-1", Namespace: "batch", UID: "4a1b", ResourceVersion: "17", CreationTimestamp: then, DeletionTimestamp: &then,
			Labels: map[string]string{"team": "etl"},
			Annotations: map[string]string{
				v1alpha1.AnnotationImageSwap: "swap", v1alpha1.AnnotationIgnoredExitCodes: "proxy,tunnel", v1alpha1.AnnotationEnd: "PodPhase/4a1b",
				v1alpha1.AnnotationMainContainers: "Running/4a1b", corev1.MirrorPodAnnotationKey: "",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyOnFailure, TerminationGracePeriodSeconds: ptr.To[int64](5),
			ActiveDeadlineSeconds: ptr.To[int64](600), ResourceClaims: []corev1.PodResourceClaim{{}},
			InitContainers: []corev1.Container{
				{Name: "retry", RestartPolicy: pod.Spec.InitContainers[1].RestartPolicy, RestartPolicyRules: pod.Spec.InitContainers[1].RestartPolicyRules},
				{Name: "native", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
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
			Phase: corev1.PodRunning, Reason: some, StartTime: &then,
			Conditions: []corev1.PodCondition{
				{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse},
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "main", ContainerID: some, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: then, FinishedAt: then}}},
				{Name: "proxy", ContainerID: some, RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: then}}},
				{Name: "tunnel", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
			},
		},
	}
	if diff := cmp.Diff(want, Trim(pod)); diff != "" {
		t.Errorf("trimmed pod (-want +got):\n%s", diff)
	}
}

// A user who may write to pods must not be able to fill the operator's memory by annotations.
func TestTrimCutsLongRecords(t *testing.T) {
	long := strings.Repeat(" ", 200<<10)
	pod := podtest.New(func(p *corev1.Pod) {
		p.Annotations = map[string]string{
			v1alpha1.AnnotationImageSwap: "{}" + long, v1alpha1.AnnotationIgnoredExitCodes: "proxy" + long,
			v1alpha1.AnnotationEnd: "PodPhase/" + long, v1alpha1.AnnotationMainContainers: "Running" + long + "/" + string(p.UID),
		}
	})
	kept := Trim(pod)
	for _, annotation := range []string{
		v1alpha1.AnnotationImageSwap, v1alpha1.AnnotationIgnoredExitCodes, v1alpha1.AnnotationEnd, v1alpha1.AnnotationMainContainers,
	} {
		if length := len(kept.Annotations[annotation]); length == 0 || length > 4<<10 {
			t.Errorf("%d bytes are kept of %s", length, annotation)
		}
	}
	_, full := (&image.Terminator{}).Observe(t.Context(), pod)
	_, part := (&image.Terminator{}).Observe(t.Context(), kept)
	if diff := cmp.Diff(fmt.Sprint(full), fmt.Sprint(part)); diff != "" || !errors.Is(full, terminator.ErrInvalidAnnotation) {
		t.Errorf("the error is %v (-full +trimmed):\n%s", full, diff)
	}
}

func TestTrimKeepsDeclaredSidecars(t *testing.T) {
	const key, limit = v1alpha1.AnnotationSidecars, resolve.MaxListBytes
	for length, kept := range map[int]int{0: 0, limit: limit, limit + 1: limit + 1, 200 << 10: limit + 1} {
		trimmed := Trim(podtest.New(func(p *corev1.Pod) {
			p.Annotations = map[string]string{key: strings.Repeat("x", length), "example.com/other": "main"}
		}))
		if diff := cmp.Diff(map[string]string{key: strings.Repeat("x", kept)}, trimmed.Annotations); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
	}
}

// A node keeps what plan.NodeKindRules read, and the version and features of its kubelet unless the node has written long ones.
func TestTrimNode(t *testing.T) {
	labels := map[string]string{"type": "virtual-kubelet", "other": "label"}
	taints := []corev1.Taint{{Key: "other"}, {Key: "virtual-kubelet.io/provider", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	for version, kept := range map[string]string{"v1.36.3": "v1.36.3", strings.Repeat("v", 300): ""} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n", ResourceVersion: "5", Labels: labels, Annotations: map[string]string{"a": "b"}},
			Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: taints},
			Status: corev1.NodeStatus{
				Images:           []corev1.ContainerImage{{SizeBytes: 1}},
				NodeInfo:         corev1.NodeSystemInfo{KubeletVersion: version, KernelVersion: "6.1"},
				DeclaredFeatures: append([]string{"A", strings.Repeat("f", 300)}, slices.Repeat([]string{"B"}, 300)...),
				Conditions:       []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}
		want := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n", ResourceVersion: "5", Labels: labels},
			Spec:       corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{
				NodeInfo:         corev1.NodeSystemInfo{KubeletVersion: kept},
				DeclaredFeatures: append([]string{"A"}, slices.Repeat([]string{"B"}, maxFeatures-2)...),
			},
		}
		if diff := cmp.Diff(want, trimNode(node)); diff != "" {
			t.Errorf("trimmed node (-want +got):\n%s", diff)
		}
	}
}

func TestTrimLeavesOtherObjects(t *testing.T) {
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "batch/job-1"}
	for name, trim := range map[string]func(any) any{"pods": compactPod, "nodes": trimNode} {
		if got := trim(tombstone); got != any(tombstone) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
