// SPDX-License-Identifier: Apache-2.0

//go:build !race

package podcache

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// FuzzCachedPod makes a pod from bytes. The decision about the whole pod and about the cached one must be the same.
func FuzzCachedPod(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 1, 2, 1, 1, 0, 3, 0, 0, 2, 1})
	f.Add([]byte{1, 0, 2, 1, 0, 5, 4, 3, 2, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 9, 9, 9, 7})
	f.Add([]byte("a pod with containers, their commands, variables, volumes, states and records"))
	f.Fuzz(testCachedPod)
}

func TestCachedPodHasSameDecision(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, 200)
	for range 2000 {
		_, _ = random.Read(data)
		testCachedPod(t, data)
	}
}

func testCachedPod(t *testing.T, data []byte) {
	t.Helper()
	next := func(bound int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % bound
	}
	pod := fuzzedPod(next)
	policy := podtest.Policy("mesh", "c1", "c2", "native")
	policy.Spec.Mode = []v1alpha1.Mode{v1alpha1.ModeAuto, v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase}[next(4)]
	policy.Spec.ExitCodePolicy = []v1alpha1.ExitCodePolicy{v1alpha1.ExitCodePolicyIgnore, v1alpha1.ExitCodePolicyRespect}[next(2)]
	options := resolve.Options{Image: "quick-exit:v1", QuickExitPaths: quickexit.CoverageOf([][]string{nil, {"default"}, {"/app/server"}, {"*"}}[next(4)]...)}
	capabilities := plan.Capabilities{
		CRRServed: next(2) == 0, EnabledModes: podtest.Modes([]plan.PodPhaseUse{plan.PodPhaseEnabled, plan.PodPhaseDisabled, plan.PodPhaseLastResort}[next(3)]),
		MaxGracePeriod: []time.Duration{0, time.Second}[next(2)],
	}
	node := []plan.NodeKind{plan.NodeReal, plan.NodeVirtual, plan.NodeDaemonless}[next(3)]

	now := podtest.Noon.Add([]time.Duration{0, 90 * time.Second, 24 * time.Hour}[next(3)])

	decide := func(pod *corev1.Pod) any {
		resolution := resolve.Resolve(pod, []resolve.Policy{policy}, options)
		return []any{resolution, decisionAt(now, plan.Snapshot{Pod: pod, View: resolution.Enforced, Node: node, Capabilities: capabilities})}
	}
	before := pod.DeepCopy()
	compact := newTestPod(t, pod)
	cached, err := compact.Decode()
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := compact.DecodeMetadata()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cached.ObjectMeta, metadata.ObjectMeta); diff != "" {
		t.Errorf("other metadata (-pod +metadata):\n%s", diff)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Fatalf("the pod was changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(decide(pod), decide(cached)); diff != "" {
		t.Errorf("another decision (-whole +cached):\n%s", diff)
	}
}

// fuzzedPod is a pod of up to four containers, each in any state.
func fuzzedPod(next func(int) int) *corev1.Pod {
	pick := func(options ...string) string { return options[next(len(options))] }
	pod := fullPod()
	pod.Spec.RestartPolicy = corev1.RestartPolicy(pick("Never", "OnFailure", "Never", "OnFailure", "Always"))
	pod.Status.Phase = corev1.PodPhase(pick("Running", "Running", "Running", "Pending", "Succeeded", "Failed"))
	if next(8) != 1 {
		pod.DeletionTimestamp = nil
	}
	pod.Spec.NodeName = pick("node-1", "node-1", "node-1", "")
	pod.Status.Conditions[1].Status = corev1.ConditionStatus(pick("False", "True", "False", "False"))
	pod.Status.Conditions[4].Status = corev1.ConditionStatus(pick("False", "True", "False", "False"))
	pod.Status.Reason = pick("", "", "", "Evicted")
	if next(3) != 1 {
		pod.Spec.ResourceClaims = nil
	}
	// Containers end at the start of the pod.
	pod.Spec.ActiveDeadlineSeconds = []*int64{nil, ptr.To[int64](1), ptr.To[int64](0)}[next(3)]
	if next(3) == 1 {
		pod.Spec.InitContainers[1].RestartPolicyRules = nil
	}
	pod.Annotations = map[string]string{"example.com/large": "value"}
	if value := pick("", "", `{"c1":{"podUID":"4a1b","image":"c1:v1","restartCount":0,"attempt":1,"swappedAt":"2026-03-01T12:00:00Z"}}`, "{", "null", "{}"); value != "" {
		pod.Annotations[v1alpha1.AnnotationImageSwap] = value
	}
	if next(2) == 1 {
		pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
	}
	// The marks of this pod, and of others.
	for _, mark := range []struct{ annotation, value string }{
		{v1alpha1.AnnotationIgnoredExitCodes, pick("", "c1,c2", "c1", "x", "c1/4a1b", "c1,c2/4a1b")},
		{v1alpha1.AnnotationEnd, pick("", "PodPhase/4a1b", "Failed/4a1b", "PodPhase/x", "CRR/4a1b", "Exited/4a1b", "Restarted/4a1b", "Waiting/4a1b")},
		{v1alpha1.AnnotationMainContainers, pick("", "Running/4a1b", "Succeeded/4a1b", "Decided/4a1b", "Decided/x")},
	} {
		if mark.value != "" {
			pod.Annotations[mark.annotation] = mark.value
		}
	}
	if next(8) == 1 {
		pod.Annotations[corev1.MirrorPodAnnotationKey] = "5e8ff9bf55ba3508199d22e984129be6"
	}
	pod.Spec.HostNetwork = next(4) == 1
	for i := range pod.Status.InitContainerStatuses {
		if next(2) == 1 {
			pod.Status.InitContainerStatuses[i].State = podtest.Running("init").State
		}
	}
	pod.Spec.Containers, pod.Status.ContainerStatuses = nil, nil
	for i := range next(5) {
		name := "c" + string(rune('0'+i))
		container := corev1.Container{Name: name, Image: pick(name+":v1", "quick-exit:v1"), Args: []string{"run"}}
		if word := pick("", "/app/server", "server", "./server", "$(BIN)/server", "sh"); word != "" {
			container.Command = []string{word, "-v"}
		}
		for range next(4) {
			variable := corev1.EnvVar{
				Name:  pick("PATH", "SECRET", v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage, v1alpha1.EnvIgnoreExitCode),
				Value: pick("true", "false", "/app", ""),
			}
			if next(6) == 1 {
				variable.Value, variable.ValueFrom = "", &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
			}
			container.Env = append(container.Env, variable)
		}
		if next(4) == 1 {
			container.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: int32(next(2)) * 8080}}
		}
		if mount := pick("", "/app", "/quick-exit", "/usr/local"); mount != "" {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: mount, SubPath: "s"})
		}
		if policy := pick("", "", "Never", "OnFailure", "Always"); policy != "" {
			container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicy(policy))
			container.RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleAction(pick("Restart", "RestartAllContainers")),
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
		status := []corev1.ContainerStatus{
			podtest.Running(name), podtest.Ended(name, 0), podtest.Ended(name, 42), podtest.Ended(name, 143),
			{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "long"}}}, {},
		}[next(6)]
		if status.Name == "" {
			continue
		}
		status.Image, status.RestartCount = container.Image, int32(next(3))
		status.LastTerminationState = podtest.Ended(name, 1).State
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
	if value := pick("", "", "c0", "c0, c2", "c0,gone", "native,c0"); value != "" {
		pod.Annotations[v1alpha1.AnnotationSidecars] = value
	}
	return pod
}

// FuzzUnmarshal decodes bytes that need not be a pod.
func FuzzUnmarshal(f *testing.F) {
	encoded, err := fullPod().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded)
	f.Add(encoded[:len(encoded)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		pod := &Pod{}
		if err := pod.Unmarshal(data); err == nil && len(pod.encoded) > max(len(data), maxBytes) {
			t.Errorf("%d bytes became %d", len(data), len(pod.encoded))
		}
		_ = (&PodList{}).Unmarshal(data)
	})
}
