// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// RBAC denies these independently of admission policies.
func TestOperatorPodAccessIsLimited(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	admin, _ := newClient(t)
	_, pod := finishedPod(t, admin)
	operator := as(t, operatorUser())
	merge := func(patch string) client.Patch {
		return client.RawPatch("application/strategic-merge-patch+json", []byte(patch))
	}
	debugger := merge(`{"spec":{"ephemeralContainers":[{"name":"mine","image":"mine:1"}]}}`)
	for name, attempt := range map[string]func() error{
		"ephemeral container": func() error {
			return operator.SubResource("ephemeralcontainers").Patch(t.Context(), pod.DeepCopy(), debugger)
		},
		"resize": func() error {
			return operator.SubResource("resize").Patch(t.Context(), pod.DeepCopy(),
				merge(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"1m"}}}]}}`))
		},
		"binding": func() error {
			return operator.SubResource("binding").Create(t.Context(), pod.DeepCopy(), &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}})
		},
		"eviction": func() error {
			return operator.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), &policyv1.Eviction{})
		},
		"update": func() error { return operator.Update(t.Context(), pod.DeepCopy()) },
		"create pod": func() error {
			return operator.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "mine"}, Spec: pod.Spec})
		},
		"delete pod": func() error { return operator.Delete(t.Context(), pod.DeepCopy()) },
		"read Secret": func() error {
			return operator.Get(t.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: "s"}, &corev1.Secret{})
		},
		"token of other ServiceAccount": func() error {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "default"}}
			return operator.SubResource("token").Create(t.Context(), account, &authenticationv1.TokenRequest{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := attempt(); !apierrors.IsForbidden(err) {
				t.Errorf("got error %v, want Forbidden", err)
			}
		})
	}
	t.Run("ephemeral container in pod patch", func(t *testing.T) {
		requireDenied(t, operator.Patch(t.Context(), pod.DeepCopy(), debugger), deniedByValidation, "")
	})
}

// While a pod has a scheduling gate, the API server allows changes of its node selection.
func TestAdmissionKeepsSchedulingGates(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	admin, _ := newClient(t)
	_, finished := finishedPod(t, admin)
	for name, change := range map[string]func(pod *corev1.Pod){
		"gate removed":  func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil },
		"node selector": func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"team": "other"} },
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: finished.Namespace, GenerateName: "gated-"}, Spec: *finished.Spec.DeepCopy()}
			pod.Spec.NodeName = ""
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
			create(t, admin, pod)
			before := pod.DeepCopy()
			change(pod)
			err := as(t, operatorUser()).Patch(t.Context(), pod, client.MergeFrom(before))
			requireDenied(t, err, "only the images of regular containers", "")
		})
	}
}

// Images and phases can be written only in pods that do not restart always and have a terminated container.
func TestAdmissionRequiresTerminatedContainer(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	admin, _ := newClient(t)
	_, finished := finishedPod(t, admin)
	const (
		always, never, onFailure = corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure

		swapProxy = `{"metadata":{"annotations":{"sidecartermination.dev/image-swap":"{\"proxy\":{}}"}},
			"spec":{"containers":[{"name":"proxy","image":"quick-exit:1"}]}}`
		swapMain = `{"metadata":{"annotations":{"sidecartermination.dev/image-swap":"{\"main\":{}}"}},
			"spec":{"containers":[{"name":"main","image":"mine:1"}]}}`
		swapBoth = `{"metadata":{"annotations":{"sidecartermination.dev/image-swap":"{\"main\":{},\"proxy\":{}}"}},
			"spec":{"containers":[{"name":"main","image":"mine:1"},{"name":"proxy","image":"mine:1"}]}}`
		note      = `{"metadata":{"annotations":{"sidecartermination.dev/pod-phase":"{}"}}}`
		succeeded = `{"status":{"phase":"Succeeded"}}`
		failed    = `{"status":{"phase":"Failed"}}`
		release   = `{"metadata":{"annotations":{"sidecartermination.dev/phase-guard":null}}}`

		deniedAlways = "only pods with restartPolicy Never or OnFailure"
		deniedMirror = "the mirror pod of a static pod"
		deniedSwap   = "only when another container has terminated and keeps its image"
		deniedPhase  = "may set phase Succeeded only when a container has exited 0"
	)
	terminated := func(name string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + name, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()},
		}}
	}
	running := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + name, State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()},
		}}
	}
	waiting := corev1.ContainerStatus{Name: "proxy", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}
	type statuses = []corev1.ContainerStatus
	for name, tc := range map[string]struct {
		restartPolicy corev1.RestartPolicy
		statuses      statuses
		mirror        bool
		status        bool // patch the status subresource
		patch         string
		denied        string // empty if the write is accepted
	}{
		"swap after main succeeded":        {restartPolicy: never, statuses: statuses{terminated("main", 0), running("proxy")}, patch: swapProxy},
		"swap after main failed":           {restartPolicy: never, statuses: statuses{terminated("main", 3), running("proxy")}, patch: swapProxy},
		"swap under OnFailure":             {restartPolicy: onFailure, statuses: statuses{terminated("main", 0), running("proxy")}, patch: swapProxy},
		"swap of restarting sidecar":       {restartPolicy: onFailure, statuses: statuses{terminated("main", 0), terminated("proxy", 1)}, patch: swapProxy},
		"swap of waiting sidecar":          {restartPolicy: never, statuses: statuses{terminated("main", 0), waiting}, patch: swapProxy},
		"swap of sidecar without status":   {restartPolicy: never, statuses: statuses{terminated("main", 0)}, patch: swapProxy},
		"swap under Always":                {restartPolicy: always, statuses: statuses{terminated("main", 0), running("proxy")}, patch: swapProxy, denied: deniedAlways},
		"swap while all run":               {restartPolicy: never, statuses: statuses{running("main"), running("proxy")}, patch: swapProxy, denied: deniedSwap},
		"swap without statuses":            {restartPolicy: never, patch: swapProxy, denied: deniedSwap},
		"swap of terminated container":     {restartPolicy: never, statuses: statuses{terminated("main", 0), running("proxy")}, patch: swapMain, denied: deniedSwap},
		"swap of all containers":           {restartPolicy: never, statuses: statuses{terminated("main", 0), running("proxy")}, patch: swapBoth, denied: deniedSwap},
		"annotation under Always":          {restartPolicy: always, statuses: statuses{running("main"), running("proxy")}, patch: note, denied: deniedAlways},
		"swap in mirror pod":               {restartPolicy: never, statuses: statuses{terminated("main", 0), running("proxy")}, mirror: true, patch: swapProxy, denied: deniedMirror},
		"phase of mirror pod":              {restartPolicy: never, statuses: statuses{terminated("main", 0), running("proxy")}, mirror: true, status: true, patch: succeeded, denied: deniedMirror},
		"annotation on mirror pod":         {restartPolicy: onFailure, statuses: statuses{terminated("main", 0), running("proxy")}, mirror: true, patch: note, denied: deniedMirror},
		"Succeeded after exit 0":           {restartPolicy: never, statuses: statuses{terminated("main", 0), running("proxy")}, status: true, patch: succeeded},
		"Succeeded after exit 3":           {restartPolicy: never, statuses: statuses{terminated("main", 3), running("proxy")}, status: true, patch: succeeded, denied: deniedPhase},
		"Succeeded while all run":          {restartPolicy: never, statuses: statuses{running("main"), running("proxy")}, status: true, patch: succeeded, denied: deniedPhase},
		"Succeeded without statuses":       {restartPolicy: never, status: true, patch: succeeded, denied: deniedPhase},
		"Failed after exit 3":              {restartPolicy: never, statuses: statuses{terminated("main", 3), running("proxy")}, status: true, patch: failed},
		"Failed after exit 0":              {restartPolicy: never, statuses: statuses{terminated("main", 0), running("proxy")}, status: true, patch: failed, denied: deniedPhase},
		"Failed while all run":             {restartPolicy: never, statuses: statuses{running("main"), running("proxy")}, status: true, patch: failed, denied: deniedPhase},
		"phase guard removed":              {restartPolicy: never, statuses: statuses{running("main"), running("proxy")}, status: true, patch: release},
		"Succeeded under Always":           {restartPolicy: always, statuses: statuses{terminated("main", 0), running("proxy")}, status: true, patch: succeeded, denied: deniedAlways},
		"phase guard removed under Always": {restartPolicy: always, statuses: statuses{terminated("main", 0), running("proxy")}, status: true, patch: release, denied: deniedAlways},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: finished.Namespace, GenerateName: "limits-", Annotations: map[string]string{v1alpha1.AnnotationPhaseGuard: "Enabled"},
			}, Spec: *finished.Spec.DeepCopy()}
			pod.Spec.RestartPolicy = tc.restartPolicy
			if tc.mirror {
				asMirrorPod(pod)
			}
			create(t, admin, pod)
			pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, tc.statuses
			if err := admin.Status().Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			patch, operator := client.RawPatch("application/strategic-merge-patch+json", []byte(tc.patch)), as(t, operatorUser())
			var err error
			if tc.status {
				err = operator.Status().Patch(t.Context(), pod, patch)
			} else {
				err = operator.Patch(t.Context(), pod, patch)
			}
			requireDenied(t, err, tc.denied, "")
		})
	}
}

// asMirrorPod turns the pod into a mirror pod of a static pod, which cannot have a ServiceAccount.
func asMirrorPod(pod *corev1.Pod) {
	pod.Annotations[corev1.MirrorPodAnnotationKey] = "5e8ff9bf55ba3508199d22e984129be6"
	pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount, pod.Spec.Volumes = "", "", nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = nil
		}
	}
}

// The limits match the ServiceAccount's name in any namespace and with any prefix and suffix.
func TestAdmissionMatchesRenamedOperator(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	for user, denied := range map[string]string{
		"system:serviceaccount:elsewhere:" + deployment:                        "may change only label",
		"system:serviceaccount:" + namespace + ":prod-" + deployment + "-blue": "may change only label",
		"system:serviceaccount:" + namespace + ":other":                        "",
		deployment: "",
	} {
		t.Run(user, func(t *testing.T) {
			admin, _ := newClient(t)
			_, pod := finishedPod(t, admin)
			binding := &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "limits-"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sidecar-termination-manager-image-role"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
			}
			create(t, admin, binding)
			c := as(t, rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}})
			nothing := mergePatch(`{}`)
			testenv.Eventually(t, "the user to have permission to patch pods", func(ctx context.Context) error { return c.Patch(ctx, pod.DeepCopy(), nothing) })
			err := c.Patch(t.Context(), pod.DeepCopy(), mergePatch(`{"metadata":{"labels":{"app":"victim"}}}`))
			requireDenied(t, err, denied, "")
		})
	}
}

// Until the kubelet has seen a written phase, it still reports the old one.
func TestPhaseGuard(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	admin, _ := newClient(t)
	type mark struct{ label, annotation bool }
	for name, tc := range map[string]struct {
		marks  mark
		phase  corev1.PodPhase
		patch  string
		denied string // empty if the write is accepted
	}{
		"guarded, terminal to Running": {mark{true, true}, corev1.PodSucceeded, `{"status":{"phase":"Running"}}`, "is final"},
		"guarded, Succeeded to Failed": {mark{true, true}, corev1.PodSucceeded, `{"status":{"phase":"Failed"}}`, "is final"},
		"guarded, Failed to Succeeded": {mark{true, true}, corev1.PodFailed, `{"status":{"phase":"Succeeded"}}`, "is final"},
		"guarded, phase unchanged":     {mark{true, true}, corev1.PodSucceeded, `{"status":{"phase":"Succeeded","reason":"Seen"}}`, ""},
		"guard removed in same write":  {mark{true, true}, corev1.PodSucceeded, `{"metadata":{"annotations":{"sidecartermination.dev/phase-guard":null}},"status":{"phase":"Running"}}`, ""},
		"no annotation":                {mark{true, false}, corev1.PodSucceeded, `{"status":{"phase":"Running"}}`, ""},
		"no label":                     {mark{false, true}, corev1.PodSucceeded, `{"status":{"phase":"Running"}}`, ""},
		"Pending to Running":           {mark{true, true}, corev1.PodPending, `{"status":{"phase":"Running"}}`, ""},
		"Running to Succeeded":         {mark{true, true}, corev1.PodRunning, `{"status":{"phase":"Succeeded"}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, pod := finishedPod(t, admin)
			pod.Labels, pod.Annotations = map[string]string{}, map[string]string{}
			if tc.marks.label {
				pod.Labels[v1alpha1.LabelTerminatedBy] = "PodPhase"
			}
			if tc.marks.annotation {
				pod.Annotations[v1alpha1.AnnotationPhaseGuard] = "Enabled"
			}
			if err := admin.Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			pod.Status.Phase = tc.phase
			if err := admin.Status().Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			err := admin.Status().Patch(t.Context(), pod, mergePatch(tc.patch))
			requireDenied(t, err, tc.denied, "")
		})
	}
}
