// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// The rights that modes ask for, and the leave to use them through policies.
var (
	patchPods      = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}}
	patchStatus    = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}}
	createRequests = rbacv1.PolicyRule{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"containerrecreaterequests"}, Verbs: []string{"create"}}
	createPullJobs = rbacv1.PolicyRule{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"imagepulljobs"}, Verbs: []string{"create"}}
	useModes       = rbacv1.PolicyRule{APIGroups: []string{"modes." + v1alpha1.GroupName}, Resources: []string{"modes"}, Verbs: []string{"use"}}
	useImage       = rbacv1.PolicyRule{APIGroups: []string{"modes." + v1alpha1.GroupName}, Resources: []string{"modes"}, Verbs: []string{"use"}, ResourceNames: []string{"Image"}}
	writePolicies  = rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Verbs: []string{"get", "create", "update", "patch"},
		Resources: []string{"sidecarterminationpolicies", "clustersidecarterminationpolicies"}}
	// everythingOfPolicies is what a Role for policies is often written as.
	everythingOfPolicies = rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"*"}}
)

// The words by which each mode is refused. Of several refusals the server returns one.
const (
	refusedAny      = "the policy can lead to mode"
	refusedCRR      = "the policy can lead to mode CRR, and author may not create containerrecreaterequests.apps.kruise.io in namespace "
	refusedImage    = "the policy can lead to mode Image, and author may not patch pods in namespace "
	refusedByRoles  = `User "author" cannot create resource "sidecarterminationpolicies"`
	refusedPodPhase = "the policy can lead to mode PodPhase, and author may not patch pods/status in namespace "
)

func TestAPolicyNeedsTheRightsOfTheModesThatItCanLeadTo(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	only := func(mode v1alpha1.Mode) v1alpha1.TerminationSettings {
		return v1alpha1.TerminationSettings{Mode: mode, Fallback: v1alpha1.FallbackDisabled}
	}
	respecting := func(settings v1alpha1.TerminationSettings) v1alpha1.TerminationSettings {
		settings.ExitCodes = v1alpha1.ExitCodesRespect
		return settings
	}
	for name, tc := range map[string]struct {
		rights   []rbacv1.PolicyRule
		settings v1alpha1.TerminationSettings
		sidecar  v1alpha1.TerminationSettings
		dryRun   bool
		mains    bool
		refused  string // empty when the policy is accepted
	}{
		"nothing said leads to every mode, and all rights are enough": {rights: []rbacv1.PolicyRule{createRequests, patchPods, patchStatus}},
		"without the right to create requests":                        {rights: []rbacv1.PolicyRule{patchPods, patchStatus}, refused: refusedCRR},
		"without the right to patch pods":                             {rights: []rbacv1.PolicyRule{createRequests, patchStatus}, refused: refusedImage},
		"without the right to patch their status":                     {rights: []rbacv1.PolicyRule{createRequests, patchPods}, refused: refusedPodPhase},
		"a policy that names main containers is held to the same":     {rights: []rbacv1.PolicyRule{createRequests, patchPods}, mains: true, refused: refusedPodPhase},
		"leave to use modes takes the place of the rights":            {rights: []rbacv1.PolicyRule{useModes}},
		"every right over policies is no leave to use modes":          {rights: []rbacv1.PolicyRule{everythingOfPolicies}, refused: refusedAny},
		"leave for one mode is leave for no other":                    {rights: []rbacv1.PolicyRule{useImage, patchStatus}, refused: refusedCRR},
		"leave for one mode is enough for it":                         {rights: []rbacv1.PolicyRule{useImage}, settings: only(v1alpha1.ModeImage)},
		"Image alone needs the right to patch pods alone":             {rights: []rbacv1.PolicyRule{patchPods}, settings: only(v1alpha1.ModeImage)},
		"Image alone without it":                                      {rights: []rbacv1.PolicyRule{createRequests, patchStatus}, settings: only(v1alpha1.ModeImage), refused: refusedImage},
		"Image with fallback leads to the others": {
			rights: []rbacv1.PolicyRule{patchPods, patchStatus}, settings: v1alpha1.TerminationSettings{Mode: v1alpha1.ModeImage}, refused: refusedCRR,
		},
		"PodPhase alone needs the right to patch the status alone": {rights: []rbacv1.PolicyRule{patchStatus}, settings: only(v1alpha1.ModePodPhase)},
		"PodPhase alone without it":                                {rights: []rbacv1.PolicyRule{patchPods}, settings: only(v1alpha1.ModePodPhase), refused: refusedPodPhase},
		"CRR alone writes the phase too":                           {rights: []rbacv1.PolicyRule{createRequests}, settings: only(v1alpha1.ModeCRR), refused: refusedPodPhase},
		"CRR alone writes none where exit codes are respected":     {rights: []rbacv1.PolicyRule{createRequests}, settings: respecting(only(v1alpha1.ModeCRR))},
		"a sidecar's own mode counts": {
			rights: []rbacv1.PolicyRule{patchPods}, settings: only(v1alpha1.ModeImage), sidecar: v1alpha1.TerminationSettings{Mode: v1alpha1.ModePodPhase},
			refused: refusedPodPhase,
		},
		"a sidecar's own fallback counts": {
			rights: []rbacv1.PolicyRule{patchPods, patchStatus}, settings: only(v1alpha1.ModeImage), sidecar: v1alpha1.TerminationSettings{Fallback: v1alpha1.FallbackEnabled},
			refused: refusedCRR,
		},
		"a sidecar's own exit codes count": {
			rights: []rbacv1.PolicyRule{createRequests}, settings: respecting(only(v1alpha1.ModeCRR)),
			sidecar: v1alpha1.TerminationSettings{ExitCodes: v1alpha1.ExitCodesIgnore}, refused: refusedPodPhase,
		},
		"a policy that does nothing needs no right": {dryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
			policy.Spec.TerminationSettings = tc.settings
			policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "other"}, {Name: "proxy", TerminationSettings: tc.sidecar}}
			if tc.mains {
				policy.Spec.Sidecars, policy.Spec.MainContainers = nil, []v1alpha1.ContainerName{"main"}
			}
			if tc.dryRun {
				policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
			}
			err := author(t, space, tc.rights...).Create(t.Context(), policy)
			expectRefusal(t, err, tc.refused, space)
		})
	}
}

// The roles are those that are installed, and of the built-in role edit, which a controller makes up, its parts.
func TestTheRolesForUsersGiveLeaveForWhatTheySay(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	editor := []string{"sidecar-termination-policy-editor", "sidecar-termination-policy-viewer"}
	edit := append(slices.Clone(editor), "system:aggregate-to-edit")
	imageAlone := v1alpha1.TerminationSettings{Mode: v1alpha1.ModeImage, Fallback: v1alpha1.FallbackDisabled}
	for name, tc := range map[string]struct {
		roles    []string
		settings v1alpha1.TerminationSettings
		refused  string
	}{
		"to write policies is no leave for a mode": {editor, v1alpha1.TerminationSettings{}, refusedAny},
		"nor for Image":                              {editor, imageAlone, refusedImage},
		"edit has the right that Image needs":        {edit, imageAlone, ""},
		"edit has no right that other modes need":    {edit, v1alpha1.TerminationSettings{}, refusedAny},
		"a mode user has leave for every mode":       {append(slices.Clone(editor), "sidecar-termination-mode-user"), v1alpha1.TerminationSettings{}, ""},
		"a mode user may not write policies with it": {[]string{"sidecar-termination-mode-user"}, v1alpha1.TerminationSettings{}, refusedByRoles},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			for _, role := range tc.roles {
				bind(t, space, "ClusterRole", role)
			}
			c := as(t, rest.ImpersonationConfig{UserName: "author", Groups: []string{"system:authenticated"}})
			policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
			policy.Spec.Sidecars, policy.Spec.TerminationSettings = []v1alpha1.Sidecar{{Name: "proxy"}}, tc.settings
			// The server learns of the bindings one after the other, and of this one last.
			last := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}
			grant(t, space, last)
			testenv.Eventually(t, "the rights hold", func(ctx context.Context) error {
				return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "probe-"}}, client.DryRunAll)
			})
			expectRefusal(t, c.Create(t.Context(), policy), tc.refused, space)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "none"}}
			err := c.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(`{}`)))
			if slices.Contains(tc.roles, "system:aggregate-to-edit") == apierrors.IsForbidden(err) {
				t.Errorf("whether pods may be patched has changed: %v", err)
			}
		})
	}
}

func TestHavingImagesPulledNeedsTheRightToPullThem(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	all := []rbacv1.PolicyRule{createRequests, patchPods, patchStatus}
	const refusedPrePull = "the policy has images pulled ahead, and author may not create imagepulljobs.apps.kruise.io in namespace "
	probe := newNamespace(t)
	c := author(t, probe, all...)
	testenv.Eventually(t, "policies with prePull are held to the rights of their authors", func(ctx context.Context) error {
		policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: probe, Name: "probe"}}
		policy.Spec.Sidecars, policy.Spec.PrePull = []v1alpha1.Sidecar{{Name: "proxy"}}, &v1alpha1.PrePull{}
		if err := c.Create(ctx, policy, client.DryRunAll); err == nil || !strings.Contains(err.Error(), refusedPrePull) {
			return fmt.Errorf("got %w, want it refused with %q", err, refusedPrePull)
		}
		return nil
	})
	for name, tc := range map[string]struct {
		rights  []rbacv1.PolicyRule
		change  func(*v1alpha1.PolicySpec)
		refused string
	}{
		"without the right":                           {rights: all, refused: refusedPrePull},
		"with the right":                              {rights: append(slices.Clone(all), createPullJobs)},
		"with leave":                                  {rights: []rbacv1.PolicyRule{useModes}},
		"with leave for another thing":                {rights: append(slices.Clone(all), useImage), refused: refusedPrePull},
		"with every right over policies":              {rights: append(slices.Clone(all), everythingOfPolicies), refused: refusedPrePull},
		"a policy that has no images pulled":          {rights: all, change: func(spec *v1alpha1.PolicySpec) { spec.PrePull = nil }},
		"a policy that does nothing":                  {change: func(spec *v1alpha1.PolicySpec) { spec.Enforcement = v1alpha1.EnforcementDryRun }},
		"the right is asked for beside that of modes": {rights: []rbacv1.PolicyRule{createPullJobs}, refused: refusedAny},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
			policy.Spec.Sidecars, policy.Spec.PrePull = []v1alpha1.Sidecar{{Name: "proxy"}}, &v1alpha1.PrePull{}
			if tc.change != nil {
				tc.change(&policy.Spec.PolicySpec)
			}
			expectRefusal(t, author(t, policy.Namespace, tc.rights...).Create(t.Context(), policy), tc.refused, space)
		})
	}
}

// Each way around the rule that is known.
func TestAPolicyCannotBeMadeToDoMoreThanItsAuthorMay(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	t.Run("rights in another namespace", func(t *testing.T) {
		space, other := newNamespace(t), newNamespace(t)
		c := author(t, space)
		grant(t, other, createRequests, patchPods, patchStatus)
		policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
		policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
		expectRefusal(t, c.Create(t.Context(), policy), refusedAny, "")
	})
	t.Run("a trial that is put in force", func(t *testing.T) {
		space := newNamespace(t)
		c := author(t, space)
		policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
		policy.Spec.Sidecars, policy.Spec.Enforcement = []v1alpha1.Sidecar{{Name: "proxy"}}, v1alpha1.EnforcementDryRun
		expectRefusal(t, c.Create(t.Context(), policy), "", space)
		policy.Spec.Enforcement = v1alpha1.EnforcementEnforce
		expectRefusal(t, c.Update(t.Context(), policy), refusedAny, "")
	})
	t.Run("another one's policy that is changed", func(t *testing.T) {
		space := newNamespace(t)
		admin, _ := newClient(t)
		policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
		policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
		create(t, admin, policy)
		c := author(t, space)
		policy.Labels = map[string]string{"team": "etl"}
		expectRefusal(t, c.Update(t.Context(), policy), "", space) // a label does nothing to pods
		policy.Spec.Sidecars[0].Name = "main"
		expectRefusal(t, c.Update(t.Context(), policy), refusedAny, "")
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"podSelector":{"matchLabels":{"a":"b"}}}}`))
		expectRefusal(t, c.Patch(t.Context(), policy, patch), refusedAny, "")
	})
	t.Run("the cluster kind by rights in one namespace", func(t *testing.T) {
		space := newNamespace(t)
		c := author(t, space, createRequests, patchPods, patchStatus)
		grantEverywhere(t, writePolicies)
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: space}}
		policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
		policy.Spec.Mode, policy.Spec.Fallback = v1alpha1.ModeImage, v1alpha1.FallbackDisabled
		expectRefusal(t, c.Create(t.Context(), policy), "may not patch pods in all namespaces", "")
		grantEverywhere(t, patchPods)
		expectRefusal(t, c.Create(t.Context(), policy, client.DryRunAll), "", "")
	})
}

// Whoever holds the operator's ServiceAccount holds no more than what the operator does.
func TestTheOperatorIsHeldToWhatItDoes(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	type write struct {
		status  bool
		change  func(pod *corev1.Pod)
		refused string // empty when the write is accepted
	}
	annotate := func(pod *corev1.Pod, key, value string) { pod.Annotations[key] = value }
	for name, w := range map[string]write{
		"an image with its record": {change: func(pod *corev1.Pod) {
			annotate(pod, v1alpha1.AnnotationImageSwap, `{"proxy":{"image":"proxy:1"}}`)
			pod.Spec.Containers[1].Image = "quick-exit:1"
		}},
		"an image with the record of another container": {change: func(pod *corev1.Pod) {
			annotate(pod, v1alpha1.AnnotationImageSwap, `{"proxy":{"image":"proxy:1"}}`)
			pod.Spec.Containers[0].Image = "mine:1"
		}, refused: "only along with its record"},
		"an image without a record": {change: func(pod *corev1.Pod) { pod.Spec.Containers[1].Image = "mine:1" }, refused: "only along with its record"},
		"the image of an init container": {change: func(pod *corev1.Pod) {
			annotate(pod, v1alpha1.AnnotationImageSwap, `{"setup":{"image":"setup:1"}}`)
			pod.Spec.InitContainers[0].Image = "mine:1"
		}, refused: "but the images of its regular containers"},
		"a deadline": {change: func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }, refused: "but the images of its regular containers"},
		"a toleration": {change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists})
		}, refused: "but the images of its regular containers"},
		"a command":  {change: func(pod *corev1.Pod) { pod.Spec.Containers[1].Command = []string{"mine"} }, refused: refusedByTheAPI},
		"a variable": {change: func(pod *corev1.Pod) { pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "A", Value: "b"}} }, refused: refusedByTheAPI},
		"a container": {change: func(pod *corev1.Pod) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "mine", Image: "mine:1"})
		}, refused: refusedByTheAPI},
		"its own label":             {change: func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelTerminatedBy] = "PodPhase" }, refused: "may change no label"},
		"a label":                   {change: func(pod *corev1.Pod) { pod.Labels["app"] = "victim" }, refused: "may change no label"},
		"a label taken away":        {change: func(pod *corev1.Pod) { delete(pod.Labels, "app") }, refused: "may change no label"},
		"another's note":            {change: func(pod *corev1.Pod) { annotate(pod, "example.com/run", "rm") }, refused: "may change no annotation"},
		"another's note taken away": {change: func(pod *corev1.Pod) { delete(pod.Annotations, "example.com/note") }, refused: "may change no annotation"},
		"a finalizer":               {change: func(pod *corev1.Pod) { pod.Finalizers = nil }, refused: "may not change finalizers and owners"},
		"an owner":                  {change: func(pod *corev1.Pod) { pod.OwnerReferences = nil }, refused: "may not change finalizers and owners"},
		"a terminal phase": {status: true, change: func(pod *corev1.Pod) {
			pod.Labels[v1alpha1.LabelTerminatedBy] = "PodPhase"
			annotate(pod, v1alpha1.AnnotationPodPhase, "{}")
			pod.Status.Phase = corev1.PodSucceeded
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: v1alpha1.PodConditionSidecarTerminated, Status: corev1.ConditionTrue})
		}},
		"a phase that is not terminal":      {status: true, change: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }, refused: "to Succeeded or Failed"},
		"a label along with the status":     {status: true, change: func(pod *corev1.Pod) { pod.Labels["app"] = "victim" }, refused: "may change no label"},
		"a finalizer along with the status": {status: true, change: func(pod *corev1.Pod) { pod.Finalizers = nil }, refused: "may not change finalizers and owners"},
		"an exit code":                      {status: true, change: func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].State.Terminated.ExitCode = 3 }, refused: "but its phase and condition"},
		"an address": {status: true, change: func(pod *corev1.Pod) {
			pod.Status.PodIP = "10.0.0.1"
			pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
		}, refused: "but its phase and condition"},
		"a reason":                             {status: true, change: func(pod *corev1.Pod) { pod.Status.Reason = "Evicted" }, refused: "but its phase and condition"},
		"a message, taken away":                {status: true, change: func(pod *corev1.Pod) { pod.Status.Message = "" }, refused: "but its phase and condition"},
		"a condition that is not its own":      {status: true, change: func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }, refused: "may change no condition"},
		"a condition of another type, removed": {status: true, change: func(pod *corev1.Pod) { pod.Status.Conditions = nil }, refused: "may change no condition"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newClient(t)
			_, pod := finishedPod(t, c)
			prepareForTheOperator(t, c, pod)
			before := pod.DeepCopy()
			w.change(pod)
			var err error
			if patch := client.MergeFrom(before); w.status {
				err = as(t, operatorUser()).Status().Patch(t.Context(), pod, patch)
			} else {
				err = as(t, operatorUser()).Patch(t.Context(), pod, patch)
			}
			expectRefusal(t, err, w.refused, "")
		})
	}
	t.Run("a finished pod, started again", func(t *testing.T) {
		c, _ := newClient(t)
		_, pod := finishedPod(t, c)
		pod.Status.Phase = corev1.PodSucceeded
		if err := c.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Failed"}}`))
		expectRefusal(t, as(t, operatorUser()).Status().Patch(t.Context(), pod, patch), "may not change it afterwards", "")
	})
}

// prepareForTheOperator gives the pod what the operator must leave alone.
func prepareForTheOperator(t *testing.T, c client.Client, pod *corev1.Pod) {
	t.Helper()
	pod.Labels = map[string]string{"app": "job"}
	pod.Annotations = map[string]string{"example.com/note": "kept"}
	pod.Finalizers = []string{"example.com/kept"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "1"}}
	if err := c.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		_ = c.Patch(context.Background(), pod, patch)
	})
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.Message = "as the kubelet says"
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// awaitAdmission waits until the server holds requests to the admission policies, which it learns of by a watch.
func awaitAdmission(t *testing.T) {
	t.Helper()
	space := newNamespace(t)
	c := author(t, space)
	for mode, refusal := range map[v1alpha1.Mode]string{
		v1alpha1.ModeCRR: refusedCRR, v1alpha1.ModeImage: refusedImage, v1alpha1.ModePodPhase: refusedPodPhase,
	} {
		testenv.Eventually(t, "policies of mode "+string(mode)+" are held to the rights of their authors", func(ctx context.Context) error {
			policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "probe"}}
			policy.Spec.Sidecars, policy.Spec.Mode, policy.Spec.Fallback = []v1alpha1.Sidecar{{Name: "proxy"}}, mode, v1alpha1.FallbackDisabled
			if mode != v1alpha1.ModePodPhase {
				policy.Spec.ExitCodes = v1alpha1.ExitCodesRespect
			}
			if err := c.Create(ctx, policy, client.DryRunAll); err == nil || !strings.Contains(err.Error(), refusal) {
				return fmt.Errorf("got %w, want it refused with %q", err, refusal)
			}
			return nil
		})
	}
	admin, _ := newClient(t)
	_, pod := finishedPod(t, admin)
	testenv.Eventually(t, "the operator is held to what it does", func(ctx context.Context) error {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"victim"}}}`))
		if err := as(t, operatorUser()).Patch(ctx, pod.DeepCopy(), patch, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "may change no label") {
			return fmt.Errorf("got %w, want it refused", err)
		}
		return nil
	})
}

func newNamespace(t *testing.T) string {
	t.Helper()
	c, _ := newClient(t)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "admission-"}}
	create(t, c, space)
	return space.Name
}

// author returns the client of a user who may write policies in the namespace and has the rights there.
func author(t *testing.T, space string, rights ...rbacv1.PolicyRule) client.Client {
	t.Helper()
	grant(t, space, append([]rbacv1.PolicyRule{writePolicies}, rights...)...)
	c := as(t, rest.ImpersonationConfig{UserName: "author", Groups: []string{"system:authenticated"}})
	testenv.Eventually(t, "the rights hold", func(ctx context.Context) error {
		policy := &v1alpha1.SidecarTerminationPolicy{}
		return client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Namespace: space, Name: "none"}, policy))
	})
	return c
}

// grant gives the author rights in the namespace.
func grant(t *testing.T, space string, rights ...rbacv1.PolicyRule) {
	t.Helper()
	c, _ := newClient(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "author-"}, Rules: rights}
	create(t, c, role)
	bind(t, space, "Role", role.Name)
}

// bind binds the author to a role in the namespace.
func bind(t *testing.T, space, kind, name string) {
	t.Helper()
	c, _ := newClient(t)
	create(t, c, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "author-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "author"}},
	})
}

// grantEverywhere gives the author rights in all namespaces, and returns when they hold.
func grantEverywhere(t *testing.T, rule rbacv1.PolicyRule) {
	t.Helper()
	c, _ := newClient(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "author-"}, Rules: []rbacv1.PolicyRule{rule}}
	create(t, c, role)
	create(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "author"}},
	})
	what := authorizationv1.ResourceAttributes{
		Group: rule.APIGroups[0], Resource: rule.Resources[len(rule.Resources)-1], Verb: rule.Verbs[len(rule.Verbs)-1],
	}
	if len(rule.ResourceNames) > 0 {
		what.Name = rule.ResourceNames[len(rule.ResourceNames)-1]
	}
	testenv.Eventually(t, "the author has the right", func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "author", ResourceAttributes: &what}}
		if err := c.Create(ctx, review); err != nil || review.Status.Allowed {
			return err
		}
		return errors.New("not yet")
	})
}

// operatorUser is the operator's ServiceAccount.
func operatorUser() rest.ImpersonationConfig {
	return rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + deployment,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
}

// as returns a client that acts as the user.
func as(t *testing.T, user rest.ImpersonationConfig) client.Client {
	t.Helper()
	config := rest.CopyConfig(server)
	config.Impersonate = user
	c, err := client.New(config, client.Options{Scheme: kinds(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// refusedByTheAPI is part of what the API server says to whoever changes of a pod what nobody may change.
const refusedByTheAPI = "pod updates may not"

// expectRefusal checks that the request was accepted if no refusal is given, and else that it was refused with those words,
// followed by the name of the namespace where they end with a blank.
func expectRefusal(t *testing.T, err error, refusal, space string) {
	t.Helper()
	if !strings.HasSuffix(refusal, " ") {
		space = ""
	}
	switch {
	case refusal == "" && err != nil:
		t.Errorf("refused: %v", err)
	case refusal != "" && (apierrors.IsForbidden(err) == (refusal == refusedByTheAPI) || !strings.Contains(err.Error(), refusal+space)):
		t.Errorf("got error %v, want it refused with %q", err, refusal+space)
	}
}
