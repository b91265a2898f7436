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
	"github.com/sidecar-termination/operator/internal/testenv"
)

// What the operator's ServiceAccount has no right to, whatever admission says.
func TestTheOperatorHasNoOtherWayIntoAPod(t *testing.T) {
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
		"an ephemeral container": func() error {
			return operator.SubResource("ephemeralcontainers").Patch(t.Context(), pod.DeepCopy(), debugger)
		},
		"a resize": func() error {
			return operator.SubResource("resize").Patch(t.Context(), pod.DeepCopy(),
				merge(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"1m"}}}]}}`))
		},
		"a binding": func() error {
			return operator.SubResource("binding").Create(t.Context(), pod.DeepCopy(), &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}})
		},
		"an eviction": func() error {
			return operator.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), &policyv1.Eviction{})
		},
		"a whole update instead of a patch": func() error { return operator.Update(t.Context(), pod.DeepCopy()) },
		"a pod of its own": func() error {
			return operator.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "mine"}, Spec: pod.Spec})
		},
		"the removal of a pod": func() error { return operator.Delete(t.Context(), pod.DeepCopy()) },
		"a Secret": func() error {
			return operator.Get(t.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: "s"}, &corev1.Secret{})
		},
		"a token of another ServiceAccount": func() error {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "default"}}
			return operator.SubResource("token").Create(t.Context(), account, &authenticationv1.TokenRequest{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := attempt(); !apierrors.IsForbidden(err) {
				t.Errorf("got error %v, want it forbidden", err)
			}
		})
	}
	t.Run("an ephemeral container by a patch of the pod", func(t *testing.T) {
		expectRefusal(t, operator.Patch(t.Context(), pod.DeepCopy(), debugger), refusedByTheAPI, "")
	})
}

// A pod with a scheduling gate lets writers choose its nodes, and waits for the gate to be taken away.
func TestTheOperatorLetsNoPodThroughItsGates(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	admin, _ := newClient(t)
	_, finished := finishedPod(t, admin)
	for name, change := range map[string]func(pod *corev1.Pod){
		"a gate taken away": func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil },
		"a node selector":   func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"team": "other"} },
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: finished.Namespace, GenerateName: "gated-"}, Spec: *finished.Spec.DeepCopy()}
			pod.Spec.NodeName = ""
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
			create(t, admin, pod)
			before := pod.DeepCopy()
			change(pod)
			err := as(t, operatorUser()).Patch(t.Context(), pod, client.MergeFrom(before))
			expectRefusal(t, err, "but the images of its regular containers", "")
		})
	}
}

// Images and phases are for pods that are meant to end, once a container of theirs has.
func TestTheOperatorEndsOnlyPodsOfJobsOfWhichAContainerHasEnded(t *testing.T) {
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

		refusedAlways = "no pod but those with restartPolicy Never or OnFailure"
		refusedMirror = "no mirror pod of a static pod"
		refusedSwap   = "only after a container of it has ended, whose own image stays"
		refusedPhase  = "may end a pod as Succeeded only after a container of it has ended with 0"
	)
	ended := func(name string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + name, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()},
		}}
	}
	runs := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + name, State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()},
		}}
	}
	waits := corev1.ContainerStatus{Name: "proxy", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}
	type statuses = []corev1.ContainerStatus
	for name, tc := range map[string]struct {
		restarts corev1.RestartPolicy
		statuses statuses
		mirror   bool // the pod mirrors a static pod
		status   bool // the patch is one of the status
		patch    string
		refused  string // empty when the write is accepted
	}{
		"a swap beside a main container that has ended":         {restarts: never, statuses: statuses{ended("main", 0), runs("proxy")}, patch: swapProxy},
		"a swap beside one that has failed":                     {restarts: never, statuses: statuses{ended("main", 3), runs("proxy")}, patch: swapProxy},
		"a swap under OnFailure":                                {restarts: onFailure, statuses: statuses{ended("main", 0), runs("proxy")}, patch: swapProxy},
		"a swap of a sidecar that is being restarted":           {restarts: onFailure, statuses: statuses{ended("main", 0), ended("proxy", 1)}, patch: swapProxy},
		"a swap of a sidecar that never started":                {restarts: never, statuses: statuses{ended("main", 0), waits}, patch: swapProxy},
		"a swap of a sidecar that nothing was reported of":      {restarts: never, statuses: statuses{ended("main", 0)}, patch: swapProxy},
		"a swap in a pod that is to run for ever":               {restarts: always, statuses: statuses{ended("main", 0), runs("proxy")}, patch: swapProxy, refused: refusedAlways},
		"a swap before anything has ended":                      {restarts: never, statuses: statuses{runs("main"), runs("proxy")}, patch: swapProxy, refused: refusedSwap},
		"a swap before anything was reported":                   {restarts: never, patch: swapProxy, refused: refusedSwap},
		"a swap of the container that has ended":                {restarts: never, statuses: statuses{ended("main", 0), runs("proxy")}, patch: swapMain, refused: refusedSwap},
		"a swap of all containers at once":                      {restarts: never, statuses: statuses{ended("main", 0), runs("proxy")}, patch: swapBoth, refused: refusedSwap},
		"a note on a pod that is to run for ever":               {restarts: always, statuses: statuses{runs("main"), runs("proxy")}, patch: note, refused: refusedAlways},
		"a swap in a mirror pod":                                {restarts: never, statuses: statuses{ended("main", 0), runs("proxy")}, mirror: true, patch: swapProxy, refused: refusedMirror},
		"success of a mirror pod":                               {restarts: never, statuses: statuses{ended("main", 0), runs("proxy")}, mirror: true, status: true, patch: succeeded, refused: refusedMirror},
		"a note on a mirror pod":                                {restarts: onFailure, statuses: statuses{ended("main", 0), runs("proxy")}, mirror: true, patch: note, refused: refusedMirror},
		"success after 0":                                       {restarts: never, statuses: statuses{ended("main", 0), runs("proxy")}, status: true, patch: succeeded},
		"success after nothing but 3":                           {restarts: never, statuses: statuses{ended("main", 3), runs("proxy")}, status: true, patch: succeeded, refused: refusedPhase},
		"success before anything has ended":                     {restarts: never, statuses: statuses{runs("main"), runs("proxy")}, status: true, patch: succeeded, refused: refusedPhase},
		"success before anything was reported":                  {restarts: never, status: true, patch: succeeded, refused: refusedPhase},
		"failure after 3":                                       {restarts: never, statuses: statuses{ended("main", 3), runs("proxy")}, status: true, patch: failed},
		"failure after nothing but 0":                           {restarts: never, statuses: statuses{ended("main", 0), runs("proxy")}, status: true, patch: failed, refused: refusedPhase},
		"failure before anything has ended":                     {restarts: never, statuses: statuses{runs("main"), runs("proxy")}, status: true, patch: failed, refused: refusedPhase},
		"the guard of a phase taken off":                        {restarts: never, statuses: statuses{runs("main"), runs("proxy")}, status: true, patch: release},
		"success of a pod that is to run for ever":              {restarts: always, statuses: statuses{ended("main", 0), runs("proxy")}, status: true, patch: succeeded, refused: refusedAlways},
		"the guard of a phase of a pod that is to run for ever": {restarts: always, statuses: statuses{ended("main", 0), runs("proxy")}, status: true, patch: release, refused: refusedAlways},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: finished.Namespace, GenerateName: "limits-", Annotations: map[string]string{v1alpha1.AnnotationPhaseGuard: "Enabled"},
			}, Spec: *finished.Spec.DeepCopy()}
			pod.Spec.RestartPolicy = tc.restarts
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
			expectRefusal(t, err, tc.refused, "")
		})
	}
}

// asMirrorPod makes the pod one that the API server takes for the mirror pod of a static pod: it has no ServiceAccount.
func asMirrorPod(pod *corev1.Pod) {
	pod.Annotations[corev1.MirrorPodAnnotationKey] = "5e8ff9bf55ba3508199d22e984129be6"
	pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount, pod.Spec.Volumes = "", "", nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = nil
		}
	}
}

// The limits go by the name of the ServiceAccount, wherever it is and whatever an overlay has put around its name.
func TestTheLimitsHoldForARenamedOperatorAndForNobodyElse(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	for user, refused := range map[string]string{
		"system:serviceaccount:elsewhere:" + deployment:                        "may change no label",
		"system:serviceaccount:" + namespace + ":prod-" + deployment + "-blue": "may change no label",
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
			nothing := client.RawPatch("application/merge-patch+json", []byte(`{}`))
			testenv.Eventually(t, "the user may patch pods", func(ctx context.Context) error { return c.Patch(ctx, pod.DeepCopy(), nothing) })
			err := c.Patch(t.Context(), pod.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"victim"}}}`)))
			expectRefusal(t, err, refused, "")
		})
	}
}

// Kubernetes has no transition out of a terminal phase, and until the kubelet has seen the phase that was written it still
// reports the old one.
func TestAWrittenPhaseStays(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	admin, _ := newClient(t)
	type mark struct{ label, annotation bool }
	for name, tc := range map[string]struct {
		marks   mark
		phase   corev1.PodPhase
		patch   string
		refused string // empty when the write is accepted
	}{
		"a guarded phase is undone":          {mark{true, true}, corev1.PodSucceeded, `{"status":{"phase":"Running"}}`, "is final"},
		"a guarded success becomes failure":  {mark{true, true}, corev1.PodSucceeded, `{"status":{"phase":"Failed"}}`, "is final"},
		"a guarded failure becomes success":  {mark{true, true}, corev1.PodFailed, `{"status":{"phase":"Succeeded"}}`, "is final"},
		"the kubelet reports all but it":     {mark{true, true}, corev1.PodSucceeded, `{"status":{"phase":"Succeeded","reason":"Seen"}}`, ""},
		"the guard is taken back along":      {mark{true, true}, corev1.PodSucceeded, `{"metadata":{"annotations":{"sidecartermination.dev/phase-guard":null}},"status":{"phase":"Running"}}`, ""},
		"a pod without the annotation":       {mark{true, false}, corev1.PodSucceeded, `{"status":{"phase":"Running"}}`, ""},
		"a pod without the label":            {mark{false, true}, corev1.PodSucceeded, `{"status":{"phase":"Running"}}`, ""},
		"a pod that has not finished starts": {mark{true, true}, corev1.PodPending, `{"status":{"phase":"Running"}}`, ""},
		"a pod that has not finished ends":   {mark{true, true}, corev1.PodRunning, `{"status":{"phase":"Succeeded"}}`, ""},
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
			err := admin.Status().Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(tc.patch)))
			expectRefusal(t, err, tc.refused, "")
		})
	}
}
