// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
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
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job"}, {Kind: "Workflow", Name: "workflow"}},
			Finalizers:      []string{"batch.kubernetes.io/job-tracking"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyOnFailure, TerminationGracePeriodSeconds: ptr.To[int64](5),
			ActiveDeadlineSeconds: ptr.To[int64](600), ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}, {Name: "nic"}},
			HostNetwork: true, ServiceAccountName: "etl", Volumes: []corev1.Volume{{Name: "data"}}, Hostname: "host",
			InitContainers: []corev1.Container{
				{Name: "setup", Image: "setup:v1"},
				{Name: "retry", Image: "retry:v1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever), RestartPolicyRules: rules},
				{Name: "native", Image: "native:v1", Resources: limits, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{
				{Name: "main", Image: "main:v1", Args: []string{"run"}, Resources: limits, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever), RestartPolicyRules: rules},
				{
					Name: "proxy", Image: "proxy:v1", Command: []string{"envoy", "-c", "/data/envoy.yaml"}, WorkingDir: "/data", Env: env,
					VolumeMounts:  []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "tools", MountPath: "/opt/bin", ReadOnly: true}},
					VolumeDevices: []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/xvda"}},
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

func TestPodHasFieldsThatAreRead(t *testing.T) {
	pod, want := fullPod(), fullPod()
	// What is not read.
	want.TypeMeta, want.Generation, want.GenerateName, want.DeletionGracePeriodSeconds = metav1.TypeMeta{}, 0, "", nil
	want.Finalizers, want.ManagedFields, want.OwnerReferences = nil, nil, want.OwnerReferences[:1]
	delete(want.Annotations, "example.com/large")
	want.Spec.ServiceAccountName, want.Spec.Volumes, want.Spec.Hostname = "", nil, ""
	for i := range want.Spec.InitContainers {
		want.Spec.InitContainers[i].Image, want.Spec.InitContainers[i].Resources = "", corev1.ResourceRequirements{}
	}
	main, proxy := &want.Spec.Containers[0], &want.Spec.Containers[1]
	main.Args, main.Resources = nil, corev1.ResourceRequirements{}
	proxy.Command, proxy.WorkingDir, proxy.Env = proxy.Command[:1], "", proxy.Env[1:]
	proxy.VolumeMounts = []corev1.VolumeMount{{MountPath: "/data"}, {MountPath: "/opt/bin"}}
	proxy.VolumeDevices = []corev1.VolumeDevice{{DevicePath: "/dev/xvda"}}
	status := &want.Status
	status.Message, status.PodIP, status.HostIP, status.QOSClass, status.InitContainerStatuses = "", "", "", "", []corev1.ContainerStatus{{}}
	status.Conditions = []corev1.PodCondition{status.Conditions[1], status.Conditions[4]}
	ended, runs := &status.ContainerStatuses[0], &status.ContainerStatuses[1]
	ended.Image, ended.ImageID = "", ""
	ended.State.Terminated.Reason, ended.State.Terminated.Message, ended.State.Terminated.ContainerID = "", "", ""
	runs.Ready, runs.Started, runs.LastTerminationState.Terminated = false, nil, &corev1.ContainerStateTerminated{}
	status.ContainerStatuses[2].State.Waiting.Message = ""
	cached := newTestPod(t, pod)
	got, err := cached.Decode()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("decoded pod: error %v (-want +got):\n%s", err, diff)
	}
	meta := metav1.ObjectMeta{Name: "job-1", Namespace: "batch", ResourceVersion: "17"}
	if diff := cmp.Diff(meta, cached.ObjectMeta); diff != "" || !cached.MayBeDone || cached.node != "node-1" {
		t.Errorf("may be done %t, node %q, metadata (-want +got):\n%s", cached.MayBeDone, cached.node, diff)
	}
}

func TestPodMayBeDoneOnceItsMainsHaveEnded(t *testing.T) {
	marked := func(ignored string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
			pod.Annotations = map[string]string{v1alpha1.AnnotationIgnoredExitCodes: ignored + "/" + string(pod.UID)}
		}
	}
	second := func(status ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "worker"})
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status...)
		}
	}
	labelOnly := func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers }
	otherLabel := func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelOutcome] = "Other" }
	for name, tc := range map[string]struct {
		changes []func(*corev1.Pod)
		want    bool
	}{
		"unmarked, all run":               {nil, false},
		"unmarked, one has ended":         {[]func(*corev1.Pod){podtest.SidecarDone}, true},
		"another label":                   {[]func(*corev1.Pod){otherLabel, podtest.SidecarDone}, true},
		"marked, all run":                 {[]func(*corev1.Pod){marked("proxy")}, false},
		"marked, the sidecar has ended":   {[]func(*corev1.Pod){marked("proxy"), podtest.SidecarDone}, false},
		"marked, the main has ended":      {[]func(*corev1.Pod){marked("proxy"), podtest.MainDone}, true},
		"marked, one of two mains":        {[]func(*corev1.Pod){marked("proxy"), podtest.MainDone, second(podtest.Running("worker"))}, false},
		"marked, a main without a status": {[]func(*corev1.Pod){marked("proxy"), podtest.MainDone, second()}, false},
		"marked, both mains":              {[]func(*corev1.Pod){marked("proxy"), podtest.MainDone, second(podtest.Ended("worker", 3))}, true},
		"every exit code counts":          {[]func(*corev1.Pod){labelOnly, podtest.MainDone}, false},
		"a list with others":              {[]func(*corev1.Pod){marked("gone,proxy,proxy,,"), podtest.MainDone}, true},
		"a list of everything":            {[]func(*corev1.Pod){marked("main,proxy"), podtest.SidecarDone}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newTestPod(t, podtest.New(tc.changes...)).MayBeDone; got != tc.want {
				t.Errorf("may be done: %t, want %t", got, tc.want)
			}
		})
	}
}

// newTestPod returns what the cache holds of the pod.
func newTestPod(tb testing.TB, pod *corev1.Pod) *Pod {
	tb.Helper()
	encoded, err := pod.Marshal()
	cached := &Pod{}
	if err := errors.Join(err, cached.Unmarshal(encoded)); err != nil {
		tb.Fatal(err)
	}
	return cached
}

// The API server sends every kind within the same envelope.
func TestCacheDecodesWhatTheAPIServerSends(t *testing.T) {
	ofCache, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	bookmark := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "17", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	listKind := metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}
	first, second := fullPod(), podtest.New()
	for name, tc := range map[string]struct{ sent, want runtime.Object }{
		"pod":      {first, newTestPod(t, first)},
		"bookmark": {bookmark, &Pod{ObjectMeta: bookmark.ObjectMeta, encoded: newTestPod(t, bookmark).encoded}},
		"list": {
			&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "18", Continue: "more"}, Items: []corev1.Pod{*first, *second}},
			&PodList{TypeMeta: listKind, ListMeta: metav1.ListMeta{ResourceVersion: "18", Continue: "more"}, Items: []Pod{*newTestPod(t, first), *newTestPod(t, second)}},
		},
		"empty list": {&corev1.PodList{}, &PodList{TypeMeta: listKind}},
	} {
		t.Run(name, func(t *testing.T) {
			protobuf, _ := runtime.SerializerInfoForMediaType(clientgoscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
			sent, err := runtime.Encode(clientgoscheme.Codecs.EncoderForVersion(protobuf.Serializer, corev1.SchemeGroupVersion), tc.sent)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runtime.Decode(serializer.NewCodecFactory(ofCache).UniversalDeserializer(), sent)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Pod{})); diff != "" || err != nil {
				t.Errorf("error %v, decoded (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestCacheDecodesNoJSON(t *testing.T) {
	for _, object := range []any{&Pod{}, &PodList{}} {
		if err := json.Unmarshal([]byte("{}"), object); !errors.Is(err, errJSON) {
			t.Errorf("%T: error %v, want %v", object, err, errJSON)
		}
	}
}

// A user who may write to pods must not be able to fill the operator's memory.
func TestLargePodBecomesStub(t *testing.T) {
	for length, want := range map[int]v1alpha1.Reason{100 << 10: "", 200 << 10: v1alpha1.ReasonPodTooLarge} {
		pod := podtest.New(func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.AnnotationIgnoredExitCodes: strings.Repeat("x", length), "example.com/large": strings.Repeat("x", 1<<20)}
		})
		got, err := newTestPod(t, pod).Decode()
		if err != nil {
			t.Fatal(err)
		}
		if reason, message := plan.Unprocessable(got); reason != want || (message == "") != (want == "") || got.UID != pod.UID {
			t.Errorf("%d bytes: reason %q, message %q, UID %q", length, reason, message, got.UID)
		}
	}
}
