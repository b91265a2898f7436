// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const deniedMarks = "cannot patch pods/status in namespace "

// forgery is a mark that makes a pod end other than its main container does, if the policies believe it.
type forgery struct{ key, value string }

// forgeries are by name. UID stands for the pod's UID.
var forgeries = map[string]forgery{
	"list of main container":  {v1alpha1.AnnotationIgnoredExitCodes, "main,proxy/UID"},
	"record Succeeded":        {v1alpha1.AnnotationMainContainers, "Succeeded/UID"},
	"record Decided":          {v1alpha1.AnnotationMainContainers, "Decided/UID"},
	"end by PodPhase":         {v1alpha1.AnnotationEnd, "PodPhase/UID"},
	"end by CRR":              {v1alpha1.AnnotationEnd, "CRR/UID"},
	"record of another pod":   {v1alpha1.AnnotationMainContainers, "Decided/f00d"},
	"list of another pod":     {v1alpha1.AnnotationIgnoredExitCodes, "main,proxy/f00d"},
	"end of another pod":      {v1alpha1.AnnotationEnd, "PodPhase/f00d"},
	"list without UID":        {v1alpha1.AnnotationIgnoredExitCodes, "main,proxy"},
	"record of swapped image": {v1alpha1.AnnotationImageSwap, `{"proxy":{}}`},
}

// forgers write the annotation to the pod, each in another way.
var forgers = map[string]func(ctx context.Context, c client.Client, pod *corev1.Pod, key, value string) error{
	"merge patch": func(ctx context.Context, c client.Client, pod *corev1.Pod, key, value string) error {
		return c.Patch(ctx, pod, patchOf(types.MergePatchType, fmt.Sprintf("metadata: {annotations: {%s: '%s'}}", key, value)))
	},
	"JSON patch that replaces all": func(ctx context.Context, c client.Client, pod *corev1.Pod, key, value string) error {
		return c.Patch(ctx, pod, patchOf(types.JSONPatchType, fmt.Sprintf("[{op: add, path: /metadata/annotations, value: {%s: '%s'}}]", key, value)))
	},
	"server-side apply with force": func(ctx context.Context, c client.Client, pod *corev1.Pod, key, value string) error {
		patch := fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {annotations: {%s: '%s'}}}", key, value)
		return c.Patch(ctx, pod, patchOf(types.ApplyPatchType, patch), client.FieldOwner("forger"), client.ForceOwnership)
	},
	"PUT": func(ctx context.Context, c client.Client, pod *corev1.Pod, key, value string) error {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
		return c.Update(ctx, pod)
	},
	"PUT with label": func(ctx context.Context, c client.Client, pod *corev1.Pod, key, value string) error {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
		metav1.SetMetaDataLabel(&pod.ObjectMeta, v1alpha1.LabelOutcome, v1alpha1.OutcomeMainContainers)
		return c.Update(ctx, pod)
	},
	"PUT of resize": func(ctx context.Context, c client.Client, pod *corev1.Pod, key, value string) error {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
		return c.SubResource("resize").Update(ctx, pod)
	},
	"PUT of ephemeralcontainers": func(ctx context.Context, c client.Client, pod *corev1.Pod, key, value string) error {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
		return c.SubResource("ephemeralcontainers").Update(ctx, pod)
	},
}

// editor returns a client of a user with the permissions of role edit in the namespace, which include patches of pods.
func editor(t *testing.T, space string) client.Client {
	t.Helper()
	subresources := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/resize", "pods/ephemeralcontainers"}, Verbs: []string{"update"}}
	return authorIn(t, space, []string{"system:aggregate-to-edit"}, rules{subresources})
}

// unmarkedPod creates a pod with containers main and proxy, and a grace period of a day.
func unmarkedPod(t *testing.T, c client.Client, space string) *corev1.Pod {
	t.Helper()
	pod := markedPod(space)
	pod.Labels, pod.Annotations, pod.Spec.TerminationGracePeriodSeconds = nil, nil, new(int64(86400))
	create(t, c, pod)
	return pod
}

// requireTrueOutcome lets the operator mark the pod, unless it is marked, and fails the test unless the main container decides how it ends.
// A kubelet reports first that its containers run, then that the main container has exited with the code.
func requireTrueOutcome(t *testing.T, c client.Client, pod *corev1.Pod, exitCode int) {
	t.Helper()
	ctx := t.Context()
	current := &corev1.Pod{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(pod), current); err != nil {
		t.Fatal(err)
	}
	wanted := "proxy/" + string(pod.UID)
	// The operator marks again if the pod does not have what it has written.
	for range 2 {
		if current.Labels[v1alpha1.LabelOutcome] != "" && current.Annotations[v1alpha1.AnnotationIgnoredExitCodes] == wanted {
			break
		}
		if err := mark(markPod)(ctx, c, current); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"Running main=running proxy=running": "Running, Running", "Running main=0 proxy=running": "Running, Succeeded",
		"Running main=3 proxy=running": "Running, Running", "Failed main=3 proxy=0": "Failed, Running"}
	reports := []string{"Running main=running proxy=running", "Running main=0 proxy=running"}
	if exitCode != 0 {
		reports = []string{"Running main=running proxy=running", "Running main=3 proxy=running", "Failed main=3 proxy=0"}
	}
	for _, report := range reports {
		if err := kubelet(report)(ctx, c, current); err != nil {
			t.Fatal(err)
		}
		outcome, _, _ := strings.Cut(podOutcome(current), ";")
		if outcome != want[report] {
			t.Errorf("after report %q the pod has outcome %q, want %q", report, outcome, want[report])
		}
	}
}

// A user with role edit cannot change how a pod ends, neither before nor after the operator has marked it.
func TestEditorsCannotForgeMarks(t *testing.T) {
	installAdmission(t)
	admin, space := installOutcome(t)
	c := editor(t, space)
	awaitMarksPolicy(t, admin, c, space)
	for what, forged := range forgeries {
		for how, write := range forgers {
			t.Run(what+", "+how, func(t *testing.T) {
				t.Parallel()
				for _, exitCode := range []int{0, 3} {
					before := unmarkedPod(t, admin, space)
					err := write(t.Context(), c, before.DeepCopy(), forged.key, strings.Replace(forged.value, "UID", string(before.UID), 1))
					if how == "PUT with label" {
						requireDenied(t, err, deniedMarks, space)
					} else if err != nil {
						t.Fatal(err)
					}
					requireTrueOutcome(t, admin, before, exitCode)

					after := unmarkedPod(t, admin, space)
					if err := mark(markPod)(t.Context(), admin, after); err != nil {
						t.Fatal(err)
					}
					err = write(t.Context(), c, after.DeepCopy(), forged.key, strings.Replace(forged.value, "UID", string(after.UID), 1))
					if strings.HasPrefix(how, "PUT of ") {
						requireUnchanged(t, admin, after, err)
					} else {
						requireDenied(t, err, deniedMarks, space)
					}
					requireTrueOutcome(t, admin, after, exitCode)
				}
			})
		}
	}
}

// requireUnchanged fails the test unless the API server has accepted a write to a subresource without its labels and annotations.
func requireUnchanged(t *testing.T, c client.Client, pod *corev1.Pod, err error) {
	t.Helper()
	current := &corev1.Pod{}
	if getErr := c.Get(t.Context(), client.ObjectKeyFromObject(pod), current); err != nil || getErr != nil {
		t.Fatal(err, getErr)
	}
	if diff := cmp.Diff([]any{pod.Labels, pod.Annotations}, []any{current.Labels, current.Annotations}); diff != "" {
		t.Errorf("labels and annotations (-before +after):\n%s", diff)
	}
}

// awaitMarksPolicy waits until the server enforces the policy.
func awaitMarksPolicy(t *testing.T, admin, c client.Client, space string) {
	t.Helper()
	pod := unmarkedPod(t, admin, space)
	awaitDenied(t, deniedMarks+space, func(ctx context.Context) error {
		return c.Patch(ctx, pod.DeepCopy(), patchOf(types.MergePatchType, "metadata: {labels: {sidecartermination.dev/outcome: MainContainers}}"), client.DryRunAll)
	})
}

func TestEditorsCanChangeOtherFieldsOfMarkedPods(t *testing.T) {
	installAdmission(t)
	admin, space := installOutcome(t)
	c := editor(t, space)
	awaitMarksPolicy(t, admin, c, space)
	pod := unmarkedPod(t, admin, space)
	if err := mark(markPod)(t.Context(), admin, pod); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ patch, denied string }{
		"other label and annotation": {"metadata: {labels: {team: etl}, annotations: {example.com/note: mine}}", ""},
		"annotation of the template": {"metadata: {annotations: {sidecartermination.dev/sidecars: proxy}}", ""},
		"label ignore":               {"metadata: {labels: {sidecartermination.dev/ignore: 'true'}}", ""},
		"same label":                 {"metadata: {labels: {sidecartermination.dev/outcome: MainContainers}}", ""},
		"label removed":              {"metadata: {labels: {sidecartermination.dev/outcome: null}}", deniedMarks},
		"label changed":              {"metadata: {labels: {sidecartermination.dev/outcome: Other}}", deniedMarks},
		"list removed":               {"metadata: {annotations: {sidecartermination.dev/ignored-exit-codes: null}}", deniedMarks},
		"all annotations removed":    {"metadata: {annotations: null}", deniedMarks},
	} {
		t.Run(name, func(t *testing.T) {
			requireDenied(t, c.Patch(t.Context(), pod.DeepCopy(), patchOf(types.MergePatchType, tc.patch), client.DryRunAll), tc.denied, space)
			requireDenied(t, admin.Patch(t.Context(), pod.DeepCopy(), patchOf(types.MergePatchType, tc.patch), client.DryRunAll), "", space)
		})
	}
	t.Run("stale PUT", func(t *testing.T) {
		stale := pod.DeepCopy()
		stale.Labels, stale.Annotations = nil, nil
		if err := c.Update(t.Context(), stale); !apierrors.IsForbidden(err) {
			t.Errorf("got error %v, want a denial", err)
		}
	})
}

// The author of a pod does not know its UID, so that no mark in a template counts.
func TestMarksAtCreationCountForNothing(t *testing.T) {
	installAdmission(t)
	admin, space := installOutcome(t)
	other := unmarkedPod(t, admin, space)
	for what, forged := range forgeries {
		for _, exitCode := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s, exit code %d", what, exitCode), func(t *testing.T) {
				t.Parallel()
				pod := markedPod(space)
				pod.UID, pod.Spec.TerminationGracePeriodSeconds = other.UID, new(int64(86400))
				pod.Annotations = map[string]string{forged.key: strings.Replace(forged.value, "UID", string(other.UID), 1)}
				create(t, admin, pod)
				requireTrueOutcome(t, admin, pod, exitCode)
			})
		}
	}
}
