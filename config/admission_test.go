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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// Permissions that modes require, and permissions to use modes through policies.
var (
	patchPods      = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}}
	patchStatus    = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}}
	createRequests = rbacv1.PolicyRule{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"containerrecreaterequests"}, Verbs: []string{"create"}}
	createPullJobs = rbacv1.PolicyRule{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"imagepulljobs"}, Verbs: []string{"create"}}
	useModes       = rbacv1.PolicyRule{APIGroups: []string{"modes." + v1alpha1.GroupName}, Resources: []string{"modes"}, Verbs: []string{"use"}}
	useImage       = rbacv1.PolicyRule{APIGroups: []string{"modes." + v1alpha1.GroupName}, Resources: []string{"modes"}, Verbs: []string{"use"}, ResourceNames: []string{"Image"}}
	writePolicies  = rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Verbs: []string{"get", "create", "update", "patch"},
		Resources: []string{"sidecarterminationpolicies", "clustersidecarterminationpolicies"}}
	// everythingOfPolicies is a common wildcard rule for policies.
	everythingOfPolicies = rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"*"}}
)

// Parts of the denials. If several policies deny a request, the server returns one of them.
const (
	deniedAny      = "the policy may use mode"
	deniedCRR      = "the policy may use mode CRR, and author cannot create containerrecreaterequests.apps.kruise.io in namespace "
	deniedImage    = "the policy may use mode Image, and author cannot patch pods in namespace "
	deniedByRoles  = `User "author" cannot create resource "sidecarterminationpolicies"`
	deniedPodPhase = "the policy may use mode PodPhase, and author cannot patch pods/status in namespace "
)

// withMode returns a spec with the mode and the fallback. onlyMode returns one without a fallback.
func withMode(mode v1alpha1.Mode, fallback v1alpha1.Fallback) v1alpha1.PolicySpec {
	return v1alpha1.PolicySpec{TerminationSettings: v1alpha1.TerminationSettings{Mode: mode}, Fallback: fallback}
}

func onlyMode(mode v1alpha1.Mode) v1alpha1.PolicySpec {
	return withMode(mode, v1alpha1.FallbackDisabled)
}

// setModes gives the policy the settings and the fallback of the spec.
func setModes(policy *v1alpha1.SidecarTerminationPolicy, spec v1alpha1.PolicySpec) {
	policy.Spec.TerminationSettings, policy.Spec.Fallback = spec.TerminationSettings, spec.Fallback
}

func TestAdmissionRequiresModePermissions(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	respecting := func(spec v1alpha1.PolicySpec) v1alpha1.PolicySpec {
		spec.ExitCodes = v1alpha1.ExitCodesRespect
		return spec
	}
	for name, tc := range map[string]struct {
		rights   []rbacv1.PolicyRule
		settings v1alpha1.PolicySpec
		sidecar  v1alpha1.TerminationSettings
		dryRun   bool
		mains    bool
		denied   string // empty if the policy is accepted
	}{
		"defaults, all permissions":           {rights: []rbacv1.PolicyRule{createRequests, patchPods, patchStatus}},
		"defaults, cannot create CRRs":        {rights: []rbacv1.PolicyRule{patchPods, patchStatus}, denied: deniedCRR},
		"defaults, cannot patch pods":         {rights: []rbacv1.PolicyRule{createRequests, patchStatus}, denied: deniedImage},
		"defaults, cannot patch status":       {rights: []rbacv1.PolicyRule{createRequests, patchPods}, denied: deniedPodPhase},
		"mainContainers, cannot patch status": {rights: []rbacv1.PolicyRule{createRequests, patchPods}, mains: true, denied: deniedPodPhase},
		"defaults, can use all modes":         {rights: []rbacv1.PolicyRule{useModes}},
		"defaults, wildcard on policies":      {rights: []rbacv1.PolicyRule{everythingOfPolicies}, denied: deniedAny},
		"defaults, can use Image only":        {rights: []rbacv1.PolicyRule{useImage, patchStatus}, denied: deniedCRR},
		"Image only, can use Image":           {rights: []rbacv1.PolicyRule{useImage}, settings: onlyMode(v1alpha1.ModeImage)},
		"Image only, can patch pods":          {rights: []rbacv1.PolicyRule{patchPods}, settings: onlyMode(v1alpha1.ModeImage)},
		"Image only, cannot patch pods":       {rights: []rbacv1.PolicyRule{createRequests, patchStatus}, settings: onlyMode(v1alpha1.ModeImage), denied: deniedImage},
		"Image with fallback, cannot create CRRs": {
			rights: []rbacv1.PolicyRule{patchPods, patchStatus}, settings: withMode(v1alpha1.ModeImage, ""), denied: deniedCRR,
		},
		"PodPhase only, can patch status":        {rights: []rbacv1.PolicyRule{patchStatus}, settings: onlyMode(v1alpha1.ModePodPhase)},
		"PodPhase only, cannot patch status":     {rights: []rbacv1.PolicyRule{patchPods}, settings: onlyMode(v1alpha1.ModePodPhase), denied: deniedPodPhase},
		"CRR only, cannot patch status":          {rights: []rbacv1.PolicyRule{createRequests}, settings: onlyMode(v1alpha1.ModeCRR), denied: deniedPodPhase},
		"CRR only with Respect, can create CRRs": {rights: []rbacv1.PolicyRule{createRequests}, settings: respecting(onlyMode(v1alpha1.ModeCRR))},
		"mode of sidecar, cannot patch status": {
			rights: []rbacv1.PolicyRule{patchPods}, settings: onlyMode(v1alpha1.ModeImage), sidecar: v1alpha1.TerminationSettings{Mode: v1alpha1.ModePodPhase},
			denied: deniedPodPhase,
		},
		"exitCodes of sidecar, cannot patch status": {
			rights: []rbacv1.PolicyRule{createRequests}, settings: respecting(onlyMode(v1alpha1.ModeCRR)),
			sidecar: v1alpha1.TerminationSettings{ExitCodes: v1alpha1.ExitCodesIgnore}, denied: deniedPodPhase,
		},
		"DryRun, no permissions": {dryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			policy := newPolicy(space)
			setModes(policy, tc.settings)
			policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "other"}, {Name: "proxy", TerminationSettings: tc.sidecar}}
			if tc.mains {
				policy.Spec.Sidecars, policy.Spec.MainContainers = nil, []v1alpha1.ContainerName{"main"}
			}
			if tc.dryRun {
				policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
			}
			err := author(t, space, tc.rights...).Create(t.Context(), policy)
			requireDenied(t, err, tc.denied, space)
		})
	}
}

// Uses the installed roles. system:aggregate-to-edit stands for role edit, which a controller aggregates.
func TestAdmissionUserRoles(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	editor := []string{"sidecar-termination-policy-editor", "sidecar-termination-policy-viewer"}
	edit := append(slices.Clone(editor), "system:aggregate-to-edit")
	imageAlone := onlyMode(v1alpha1.ModeImage)
	for name, tc := range map[string]struct {
		roles    []string
		settings v1alpha1.PolicySpec
		denied   string
	}{
		"editor, defaults":                {editor, v1alpha1.PolicySpec{}, deniedAny},
		"editor, Image only":              {editor, imageAlone, deniedImage},
		"edit, Image only":                {edit, imageAlone, ""},
		"edit, defaults":                  {edit, v1alpha1.PolicySpec{}, deniedAny},
		"editor and mode user, defaults":  {append(slices.Clone(editor), "sidecar-termination-mode-user"), v1alpha1.PolicySpec{}, ""},
		"mode user, no policy permission": {[]string{"sidecar-termination-mode-user"}, v1alpha1.PolicySpec{}, deniedByRoles},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			for _, role := range tc.roles {
				bind(t, space, "ClusterRole", role)
			}
			c := as(t, rest.ImpersonationConfig{UserName: "author", Groups: []string{"system:authenticated"}})
			policy := newPolicy(space)
			setModes(policy, tc.settings)
			// The server observes the bindings in order. This one is the last.
			last := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}
			grant(t, space, last)
			testenv.Eventually(t, "the permissions to be effective", func(ctx context.Context) error {
				return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "probe-"}}, client.DryRunAll)
			})
			requireDenied(t, c.Create(t.Context(), policy), tc.denied, space)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "none"}}
			err := c.Patch(t.Context(), pod, mergePatch(`{}`))
			if slices.Contains(tc.roles, "system:aggregate-to-edit") == apierrors.IsForbidden(err) {
				t.Errorf("unexpected permission to patch pods: %v", err)
			}
		})
	}
}

func TestAdmissionPrePull(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	all := []rbacv1.PolicyRule{createRequests, patchPods, patchStatus}
	const deniedPrePull = "the policy sets prePull, and author cannot create imagepulljobs.apps.kruise.io in namespace "
	probe := newNamespace(t)
	c := author(t, probe, all...)
	testenv.Eventually(t, "policies with prePull to require permissions", func(ctx context.Context) error {
		policy := newPolicy(probe)
		policy.Spec.PrePull = &v1alpha1.PrePull{}
		if err := c.Create(ctx, policy, client.DryRunAll); err == nil || !strings.Contains(err.Error(), deniedPrePull) {
			return fmt.Errorf("got %w, want denial %q", err, deniedPrePull)
		}
		return nil
	})
	for name, tc := range map[string]struct {
		rights []rbacv1.PolicyRule
		change func(*v1alpha1.PolicySpec)
		denied string
	}{
		"no permission":                          {rights: all, denied: deniedPrePull},
		"can create pull jobs":                   {rights: append(slices.Clone(all), createPullJobs)},
		"can use PrePull":                        {rights: []rbacv1.PolicyRule{useModes}},
		"can use Image only":                     {rights: append(slices.Clone(all), useImage), denied: deniedPrePull},
		"wildcard on policies":                   {rights: append(slices.Clone(all), everythingOfPolicies), denied: deniedPrePull},
		"no prePull":                             {rights: all, change: func(spec *v1alpha1.PolicySpec) { spec.PrePull = nil }},
		"DryRun":                                 {change: func(spec *v1alpha1.PolicySpec) { spec.Enforcement = v1alpha1.EnforcementDryRun }},
		"can create pull jobs, cannot use modes": {rights: []rbacv1.PolicyRule{createPullJobs}, denied: deniedAny},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			policy := newPolicy(space)
			policy.Spec.PrePull = &v1alpha1.PrePull{}
			if tc.change != nil {
				tc.change(&policy.Spec.PolicySpec)
			}
			requireDenied(t, author(t, policy.Namespace, tc.rights...).Create(t.Context(), policy), tc.denied, space)
		})
	}
}

// Covers every known way around the rule.
func TestAdmissionPreventsEscalation(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	t.Run("permissions in other namespace", func(t *testing.T) {
		space, other := newNamespace(t), newNamespace(t)
		c := author(t, space)
		grant(t, other, createRequests, patchPods, patchStatus)
		policy := newPolicy(space)
		requireDenied(t, c.Create(t.Context(), policy), deniedAny, "")
	})
	t.Run("DryRun changed to Enforce", func(t *testing.T) {
		space := newNamespace(t)
		c := author(t, space)
		policy := newPolicy(space)
		policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
		requireDenied(t, c.Create(t.Context(), policy), "", space)
		policy.Spec.Enforcement = v1alpha1.EnforcementEnforce
		requireDenied(t, c.Update(t.Context(), policy), deniedAny, "")
	})
	t.Run("edit of other author's policy", func(t *testing.T) {
		space := newNamespace(t)
		admin, _ := newClient(t)
		policy := newPolicy(space)
		create(t, admin, policy)
		c := author(t, space)
		policy.Labels = map[string]string{"team": "etl"}
		requireDenied(t, c.Update(t.Context(), policy), "", space) // a label changes no termination
		policy.Spec.Sidecars[0].Name = "main"
		requireDenied(t, c.Update(t.Context(), policy), deniedAny, "")
		patch := mergePatch(`{"spec":{"podSelector":{"matchLabels":{"a":"b"}}}}`)
		requireDenied(t, c.Patch(t.Context(), policy, patch), deniedAny, "")
	})
	t.Run("cluster policy with permissions in one namespace", func(t *testing.T) {
		space := newNamespace(t)
		c := author(t, space, createRequests, patchPods, patchStatus)
		grantEverywhere(t, writePolicies)
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: space}}
		policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
		policy.Spec.Mode, policy.Spec.Fallback = v1alpha1.ModeImage, v1alpha1.FallbackDisabled
		requireDenied(t, c.Create(t.Context(), policy), "cannot patch pods in all namespaces", "")
		grantEverywhere(t, patchPods)
		requireDenied(t, c.Create(t.Context(), policy, client.DryRunAll), "", "")
	})
}

// The operator's ServiceAccount can write only what the operator writes.
func TestAdmissionLimitsOperator(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	type write struct {
		status bool
		change func(pod *corev1.Pod)
		denied string // empty if the write is accepted
	}
	annotate := func(pod *corev1.Pod, key, value string) { pod.Annotations[key] = value }
	for name, w := range map[string]write{
		"image with record": {change: func(pod *corev1.Pod) {
			annotate(pod, v1alpha1.AnnotationImageSwap, `{"proxy":{"image":"proxy:1"}}`)
			pod.Spec.Containers[1].Image = "quick-exit:1"
		}},
		"image with record of other container": {change: func(pod *corev1.Pod) {
			annotate(pod, v1alpha1.AnnotationImageSwap, `{"proxy":{"image":"proxy:1"}}`)
			pod.Spec.Containers[0].Image = "mine:1"
		}, denied: "only with a record"},
		"image without record": {change: func(pod *corev1.Pod) { pod.Spec.Containers[1].Image = "mine:1" }, denied: "only with a record"},
		"image of init container": {change: func(pod *corev1.Pod) {
			annotate(pod, v1alpha1.AnnotationImageSwap, `{"setup":{"image":"setup:1"}}`)
			pod.Spec.InitContainers[0].Image = "mine:1"
		}, denied: "only the images of regular containers"},
		"activeDeadlineSeconds": {change: func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }, denied: "only the images of regular containers"},
		"toleration": {change: func(pod *corev1.Pod) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists})
		}, denied: "only the images of regular containers"},
		"command": {change: func(pod *corev1.Pod) { pod.Spec.Containers[1].Command = []string{"mine"} }, denied: deniedByValidation},
		"env":     {change: func(pod *corev1.Pod) { pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "A", Value: "b"}} }, denied: deniedByValidation},
		"added container": {change: func(pod *corev1.Pod) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "mine", Image: "mine:1"})
		}, denied: deniedByValidation},
		"own label without status": {change: func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelTerminatedBy] = "PodPhase" }, denied: "may change only label"},
		"other label":              {change: func(pod *corev1.Pod) { pod.Labels["app"] = "victim" }, denied: "may change only label"},
		"label removed":            {change: func(pod *corev1.Pod) { delete(pod.Labels, "app") }, denied: "may change only label"},
		"other annotation":         {change: func(pod *corev1.Pod) { annotate(pod, "example.com/run", "rm") }, denied: "may change only a pod's annotations"},
		"other annotation removed": {change: func(pod *corev1.Pod) { delete(pod.Annotations, "example.com/note") }, denied: "may change only a pod's annotations"},
		"finalizer removed":        {change: func(pod *corev1.Pod) { pod.Finalizers = nil }, denied: "may not change a pod's finalizers and owners"},
		"owner removed":            {change: func(pod *corev1.Pod) { pod.OwnerReferences = nil }, denied: "may not change a pod's finalizers and owners"},
		"terminal phase": {status: true, change: func(pod *corev1.Pod) {
			pod.Labels[v1alpha1.LabelTerminatedBy] = "PodPhase"
			annotate(pod, v1alpha1.AnnotationPodPhase, "{}")
			pod.Status.Phase = corev1.PodSucceeded
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: v1alpha1.PodConditionSidecarTerminated, Status: corev1.ConditionTrue})
		}},
		"non-terminal phase":    {status: true, change: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }, denied: "only to Succeeded or Failed"},
		"label with status":     {status: true, change: func(pod *corev1.Pod) { pod.Labels["app"] = "victim" }, denied: "may change only label"},
		"finalizer with status": {status: true, change: func(pod *corev1.Pod) { pod.Finalizers = nil }, denied: "may not change a pod's finalizers and owners"},
		"exit code":             {status: true, change: func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].State.Terminated.ExitCode = 3 }, denied: "only the phase and conditions"},
		"pod IP": {status: true, change: func(pod *corev1.Pod) {
			pod.Status.PodIP = "10.0.0.1"
			pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
		}, denied: "only the phase and conditions"},
		"reason":                  {status: true, change: func(pod *corev1.Pod) { pod.Status.Reason = "Evicted" }, denied: "only the phase and conditions"},
		"message removed":         {status: true, change: func(pod *corev1.Pod) { pod.Status.Message = "" }, denied: "only the phase and conditions"},
		"other condition":         {status: true, change: func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }, denied: "may change only condition"},
		"other condition removed": {status: true, change: func(pod *corev1.Pod) { pod.Status.Conditions = nil }, denied: "may change only condition"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newClient(t)
			_, pod := finishedPod(t, c)
			addForeignFields(t, c, pod)
			before := pod.DeepCopy()
			w.change(pod)
			var err error
			if patch := client.MergeFrom(before); w.status {
				err = as(t, operatorUser()).Status().Patch(t.Context(), pod, patch)
			} else {
				err = as(t, operatorUser()).Patch(t.Context(), pod, patch)
			}
			requireDenied(t, err, w.denied, "")
		})
	}
	t.Run("second phase", func(t *testing.T) {
		c, _ := newClient(t)
		_, pod := finishedPod(t, c)
		pod.Status.Phase = corev1.PodSucceeded
		if err := c.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		patch := mergePatch(`{"status":{"phase":"Failed"}}`)
		requireDenied(t, as(t, operatorUser()).Status().Patch(t.Context(), pod, patch), "and only once", "")
	})
}

// addForeignFields sets fields that the operator must not change.
func addForeignFields(t *testing.T, c client.Client, pod *corev1.Pod) {
	t.Helper()
	pod.Labels = map[string]string{"app": "job"}
	pod.Annotations = map[string]string{"example.com/note": "kept"}
	pod.Finalizers = []string{"example.com/kept"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "1"}}
	if err := c.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		patch := mergePatch(`{"metadata":{"finalizers":null}}`)
		_ = c.Patch(context.Background(), pod, patch)
	})
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.Message = "as the kubelet says"
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// awaitAdmission waits until the server enforces the admission policies, which it reads by a watch.
func awaitAdmission(t *testing.T) {
	t.Helper()
	space := newNamespace(t)
	c := author(t, space)
	for mode, denial := range map[v1alpha1.Mode]string{
		v1alpha1.ModeCRR: deniedCRR, v1alpha1.ModeImage: deniedImage, v1alpha1.ModePodPhase: deniedPodPhase,
	} {
		testenv.Eventually(t, "mode "+string(mode)+" to require permissions", func(ctx context.Context) error {
			policy := newPolicy(space)
			policy.Spec.Mode, policy.Spec.Fallback = mode, v1alpha1.FallbackDisabled
			if mode != v1alpha1.ModePodPhase {
				policy.Spec.ExitCodes = v1alpha1.ExitCodesRespect
			}
			if err := c.Create(ctx, policy, client.DryRunAll); err == nil || !strings.Contains(err.Error(), denial) {
				return fmt.Errorf("got %w, want denial %q", err, denial)
			}
			return nil
		})
	}
	admin, _ := newClient(t)
	_, pod := finishedPod(t, admin)
	testenv.Eventually(t, "the operator to be limited", func(ctx context.Context) error {
		patch := mergePatch(`{"metadata":{"labels":{"app":"victim"}}}`)
		if err := as(t, operatorUser()).Patch(ctx, pod.DeepCopy(), patch, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "may change only label") {
			return fmt.Errorf("got %w, want denial", err)
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

// author returns a client of a user who can write policies in the namespace and has the permissions there.
func author(t *testing.T, space string, rights ...rbacv1.PolicyRule) client.Client {
	t.Helper()
	grant(t, space, append([]rbacv1.PolicyRule{writePolicies}, rights...)...)
	c := as(t, rest.ImpersonationConfig{UserName: "author", Groups: []string{"system:authenticated"}})
	testenv.Eventually(t, "the permissions to be effective", func(ctx context.Context) error {
		policy := &v1alpha1.SidecarTerminationPolicy{}
		return client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Namespace: space, Name: "none"}, policy))
	})
	return c
}

// grant gives the author permissions in the namespace.
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

// grantEverywhere gives the author permissions in all namespaces, and returns when they are effective.
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
	testenv.Eventually(t, "the permission to be effective", func(ctx context.Context) error {
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

// newPolicy returns a policy with sidecar proxy and default settings.
func newPolicy(space string) *v1alpha1.SidecarTerminationPolicy {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	return policy
}

func mergePatch(patch string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(patch))
}

// deniedByValidation is part of the API server's own error for immutable fields of a pod.
const deniedByValidation = "pod updates may not"

// requireDenied requires that the request was accepted if denial is empty, and that its error contains denial otherwise. A
// denial that ends with a blank is followed by the namespace.
func requireDenied(t *testing.T, err error, denial, space string) {
	t.Helper()
	if strings.HasSuffix(denial, " ") {
		denial += space
	}
	switch {
	case denial == "" && err != nil:
		t.Errorf("denied: %v", err)
	case denial != "" && (apierrors.IsForbidden(err) == (denial == deniedByValidation) || !strings.Contains(err.Error(), denial)):
		t.Errorf("got error %v, want denial %q", err, denial)
	}
}
