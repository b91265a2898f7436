// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// prefer returns a policy of the namespace that asks for the conversion of the sidecars.
func prefer(space, name string, sidecars ...string) *v1alpha1.SidecarTerminationPolicy {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}}
	policy.Spec.NativeConversion = v1alpha1.NativeConversionPreferred
	for _, sidecar := range sidecars {
		policy.Spec.Sidecars = append(policy.Spec.Sidecars, v1alpha1.Sidecar{Name: sidecar})
	}
	return policy
}

// jobPod returns a pod with the containers.
func jobPod(space string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "job"}, Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever}}
	for _, name := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: name + ":1"})
	}
	return pod
}

// shape is what conversion changes in a pod.
type shape struct {
	Init, Native, Regular []string
	Annotation            string
}

func shapeOf(pod *corev1.Pod) shape {
	s := shape{Annotation: pod.Annotations[v1alpha1.AnnotationNativeSidecars]}
	for _, c := range pod.Spec.InitContainers {
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			s.Native = append(s.Native, c.Name)
		} else {
			s.Init = append(s.Init, c.Name)
		}
	}
	for _, c := range pod.Spec.Containers {
		s.Regular = append(s.Regular, c.Name)
	}
	return s
}

// requireShape creates the pod without storing it, and compares the result.
func requireShape(t *testing.T, pod *corev1.Pod, want shape) {
	t.Helper()
	c, _ := newClient(t)
	if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, shapeOf(pod)); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

// injector is a mutating webhook that adds a container to pods that lack it.
type injector struct {
	container corev1.Container
	// everywhere is true if it looks for its container among the init containers as well.
	everywhere bool
}

func (i injector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	pod := &corev1.Pod{}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || json.Unmarshal(review.Request.Object.Raw, pod) != nil {
		http.Error(w, "no review of a pod", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	named := func(c corev1.Container) bool { return c.Name == i.container.Name }
	present := slices.ContainsFunc(pod.Spec.Containers, named) || i.everywhere && slices.ContainsFunc(pod.Spec.InitContainers, named)
	if !present {
		patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/spec/containers/0", "value": i.container}})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		review.Response.Patch, review.Response.PatchType = patch, ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// inject installs the injector for the namespace, and returns when it is effective.
func inject(t *testing.T, space string, i injector, reinvocation registrationv1.ReinvocationPolicyType) {
	t.Helper()
	c, _ := newClient(t)
	webhook := httptest.NewTLSServer(i)
	t.Cleanup(webhook.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	create(t, c, &registrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "injector-"},
		Webhooks: []registrationv1.MutatingWebhook{{
			Name:                    "injector.example.com",
			ClientConfig:            registrationv1.WebhookClientConfig{URL: &webhook.URL, CABundle: authority},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: space}},
			ReinvocationPolicy:      &reinvocation,
			SideEffects:             ptr.To(registrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create},
				Rule:       registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	})
	testenv.Eventually(t, "containers to be injected", func(ctx context.Context) error {
		probe := jobPod(space, "main")
		probe.Spec.RestartPolicy = corev1.RestartPolicyAlways
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if len(probe.Spec.Containers) != 2 {
			return errors.New("none was injected")
		}
		return nil
	})
}

func TestNativeWithInjectors(t *testing.T) {
	installNative(t)
	c, _ := newClient(t)
	proxy := corev1.Container{Name: "proxy", Image: "proxy:1"}
	declared := corev1.Container{Name: "proxy", Image: "proxy:1", Env: []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}}
	for name, tc := range map[string]struct {
		injector     injector
		reinvocation registrationv1.ReinvocationPolicyType
		environment  bool // the environment variables ask, not a policy
		containers   []string
		refused      string
	}{
		"not asked again":                      {injector{container: proxy}, registrationv1.NeverReinvocationPolicy, false, []string{"main"}, ""},
		"not asked again, container present":   {injector{container: proxy}, registrationv1.NeverReinvocationPolicy, false, []string{"proxy", "main"}, ""},
		"asked again, knows native sidecars":   {injector{proxy, true}, registrationv1.IfNeededReinvocationPolicy, false, []string{"main"}, ""},
		"asked again, regular containers only": {injector{container: proxy}, registrationv1.IfNeededReinvocationPolicy, false, []string{"main"}, `Duplicate value: "proxy"`},
		"declared by environment variables":    {injector{container: declared}, registrationv1.NeverReinvocationPolicy, true, []string{"main"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			by := "SidecarTerminationPolicy/mesh"
			if tc.environment {
				by = "Environment"
				patch := mergePatch(`{"metadata":{"labels":{"` + v1alpha1.LabelNativeEnvironment + `":"true"}}}`)
				if err := c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, patch); err != nil {
					t.Fatal(err)
				}
			} else {
				create(t, c, prefer(space, "mesh", "proxy"))
			}
			inject(t, space, tc.injector, tc.reinvocation)
			awaitNative(t)
			pod := jobPod(space, tc.containers...)
			if tc.refused == "" {
				requireShape(t, pod, shape{Native: []string{"proxy"}, Regular: []string{"main"}, Annotation: "proxy=" + by})
				return
			}
			if err := c.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("got error %v, want %q", err, tc.refused)
			}
		})
	}
}

// The API server evaluates policies in any order.
func TestNativeResultDoesNotDependOnOrder(t *testing.T) {
	installNative(t)
	c, _ := newClient(t)
	space := newNamespace(t)
	none := prefer(space, "none", "logs")
	none.Spec.Sidecars = append(none.Spec.Sidecars, v1alpha1.Sidecar{
		Name: "proxy", TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: v1alpha1.NativeConversionNone},
	})
	drains := prefer(space, "drains", "logs", "metrics")
	drains.Spec.Sidecars[1].DrainSeconds = ptr.To[int32](5)
	for _, policy := range []*v1alpha1.SidecarTerminationPolicy{prefer(space, "mesh", "proxy"), none, drains} {
		create(t, c, policy)
	}
	awaitNative(t)
	for range 100 {
		requireShape(t, jobPod(space, "proxy", "main", "metrics", "logs"), shape{
			Native: []string{"proxy", "logs"}, Regular: []string{"main", "metrics"},
			Annotation: "proxy=SidecarTerminationPolicy/mesh,logs=SidecarTerminationPolicy/drains",
		})
	}
	create(t, c, prefer(space, "mains", "main", "metrics"))
	awaitNative(t)
	for range 100 {
		requireShape(t, jobPod(space, "proxy", "main", "metrics", "logs"), shape{
			Regular: []string{"proxy", "main", "metrics", "logs"}, Annotation: "!NoMainContainer",
		})
	}
}

func TestNativeAnnotationOfAuthorConvertsNothing(t *testing.T) {
	installNative(t)
	c, _ := newClient(t)
	space := newNamespace(t)
	create(t, c, prefer(space, "mesh", "proxy"))
	awaitNative(t)
	forged := "?SidecarTerminationPolicy/mesh:+proxy"
	pod := jobPod(space, "main", "proxy")
	pod.Annotations = map[string]string{v1alpha1.AnnotationNativeSidecars: forged}
	want := shape{Regular: []string{"main", "proxy"}, Annotation: forged}
	requireShape(t, pod.DeepCopy(), want)

	// Server-side apply, with one owner.
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		t.Fatal(err)
	}
	applied := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(applied.Object, "status")
	unstructured.RemoveNestedField(applied.Object, "metadata", "creationTimestamp")
	if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("author"), client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	got := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(applied.Object, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, shapeOf(got)); diff != "" {
		t.Errorf("applied pod (-want +got):\n%s", diff)
	}
}

// Whatever policies and pods contain, pods are created.
func TestNativeLimits(t *testing.T) {
	installNative(t)
	c, _ := newClient(t)
	long := func(n int) string { return fmt.Sprintf("s%062d", n) }

	t.Run("too many policies", func(t *testing.T) {
		space := newNamespace(t)
		for i := range 20 {
			var sidecars []string
			for j := range 32 {
				sidecars = append(sidecars, long(i*32+j))
			}
			create(t, c, prefer(space, fmt.Sprintf("p%d", i), append(sidecars[1:], "proxy")...))
		}
		awaitNative(t)
		requireShape(t, jobPod(space, "main", "proxy"), shape{Regular: []string{"main", "proxy"}, Annotation: "!TooManyPolicies"})
	})

	t.Run("all that fits", func(t *testing.T) {
		space := newNamespace(t)
		var names []string
		for i := range 127 {
			names = append(names, long(i))
		}
		for i := range 15 {
			create(t, c, prefer(space, fmt.Sprintf("p%d", i), names[i*8:i*8+7]...))
		}
		awaitNative(t)
		pod := jobPod(space, append(names, "main")...)
		if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if got := len(shapeOf(pod).Native); got != 15*7 {
			t.Errorf("%d containers were converted, want %d", got, 15*7)
		}
	})

	t.Run("the largest selector and a pod of 700 KiB", func(t *testing.T) {
		space := newNamespace(t)
		policy := prefer(space, "mesh", "proxy")
		pod := jobPod(space, "main", "proxy")
		pod.Labels, policy.Spec.PodSelector.MatchLabels = map[string]string{}, map[string]string{}
		for i := range 64 {
			key := fmt.Sprintf("example.com/%d", i)
			pod.Labels[key], policy.Spec.PodSelector.MatchLabels[key] = long(i), long(i)
			var values []string
			for j := range 64 {
				values = append(values, long(i*64+j+1000))
			}
			policy.Spec.PodSelector.MatchExpressions = append(policy.Spec.PodSelector.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values})
		}
		for range 1400 {
			for i := range pod.Spec.Containers {
				pod.Spec.Containers[i].Env = append(pod.Spec.Containers[i].Env, corev1.EnvVar{Name: "VARIABLE", Value: strings.Repeat("v", 200)})
			}
		}
		create(t, c, policy)
		awaitNative(t)
		requireShape(t, pod, shape{Native: []string{"proxy"}, Regular: []string{"main"}, Annotation: "proxy=SidecarTerminationPolicy/mesh"})
	})

	t.Run("annotations up to the server's limit", func(t *testing.T) {
		space := newNamespace(t)
		create(t, c, prefer(space, "mesh", "proxy"))
		awaitNative(t)
		pod := jobPod(space, "main", "proxy")
		pod.Annotations = map[string]string{"large": strings.Repeat("x", 256<<10-len("large"))}
		requireShape(t, pod, shape{Regular: []string{"main", "proxy"}})
	})
}

func TestNativeLabelFollowsPolicy(t *testing.T) {
	installNative(t)
	c, _ := newClient(t)
	space := newNamespace(t)
	policy := prefer(space, "mesh", "proxy")
	create(t, c, policy)
	for _, step := range []struct {
		name   string
		change func(*v1alpha1.SidecarTerminationPolicy)
		want   string
	}{
		{"created", func(*v1alpha1.SidecarTerminationPolicy) {}, "Preferred"},
		{"DryRun", func(p *v1alpha1.SidecarTerminationPolicy) { p.Spec.Enforcement = v1alpha1.EnforcementDryRun }, ""},
		{"enforced", func(p *v1alpha1.SidecarTerminationPolicy) { p.Spec.Enforcement = v1alpha1.EnforcementEnforce }, "Preferred"},
		{"label removed", func(p *v1alpha1.SidecarTerminationPolicy) { p.Labels = nil }, "Preferred"},
		{"None", func(p *v1alpha1.SidecarTerminationPolicy) { p.Spec.NativeConversion = v1alpha1.NativeConversionNone }, ""},
		{"label added", func(p *v1alpha1.SidecarTerminationPolicy) {
			p.Labels = map[string]string{v1alpha1.LabelNativeConversion: "Preferred", "app": "mesh"}
		}, ""},
		{"one sidecar", func(p *v1alpha1.SidecarTerminationPolicy) {
			p.Spec.Sidecars[0].NativeConversion = v1alpha1.NativeConversionPreferred
		}, "Preferred"},
		{"operator that does not exist", func(p *v1alpha1.SidecarTerminationPolicy) {
			p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near", Values: []string{"a"}}}
		}, ""},
		{"value that no label can have", func(p *v1alpha1.SidecarTerminationPolicy) {
			p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a b"}}}
		}, ""},
		{"valid selector", func(p *v1alpha1.SidecarTerminationPolicy) { p.Spec.PodSelector.MatchExpressions = nil }, "Preferred"},
	} {
		step.change(policy)
		if err := c.Update(t.Context(), policy); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := policy.Labels[v1alpha1.LabelNativeConversion]; got != step.want {
			t.Errorf("%s: label is %q, want %q", step.name, got, step.want)
		}
	}
}

// A converted sidecar is subject to Pod Security like any container.
func TestPodSecurityChecksConvertedPods(t *testing.T) {
	installNative(t)
	c, _ := newClient(t)
	space := newNamespace(t)
	patch := mergePatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)
	if err := c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, patch); err != nil {
		t.Fatal(err)
	}
	create(t, c, prefer(space, "mesh", "proxy"))
	awaitNative(t)
	requireShape(t, jobPod(space, "main", "proxy"), shape{
		Native: []string{"proxy"}, Regular: []string{"main"}, Annotation: "proxy=SidecarTerminationPolicy/mesh",
	})
	pod := jobPod(space, "main", "proxy")
	pod.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	if err := c.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "baseline:latest": privileged (container "proxy"`) {
		t.Errorf("got error %v, want an error of Pod Security", err)
	}
}

func TestAdmissionRequiresNativePermission(t *testing.T) {
	apply(t, "default")
	awaitAdmission(t)
	const denied = "the policy asks for conversion to native sidecars, and author cannot patch pods in namespace "
	useNative := rbacv1.PolicyRule{APIGroups: []string{"modes." + v1alpha1.GroupName}, Resources: []string{"modes"}, Verbs: []string{"use"}, ResourceNames: []string{"Native", "CRR"}}
	onlyCRR := func(p *v1alpha1.SidecarTerminationPolicy) {
		p.Spec.Mode, p.Spec.Fallback, p.Spec.ExitCodes = v1alpha1.ModeCRR, v1alpha1.FallbackDisabled, v1alpha1.ExitCodesRespect
		p.Spec.NativeConversion = ""
		p.Spec.Sidecars = append(p.Spec.Sidecars, v1alpha1.Sidecar{Name: "other"})
	}
	ofSidecar := func(p *v1alpha1.SidecarTerminationPolicy) {
		onlyCRR(p)
		p.Spec.Sidecars[1].NativeConversion = v1alpha1.NativeConversionPreferred
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.SidecarTerminationPolicy)
		rights []rbacv1.PolicyRule
		denied string
	}{
		"does not ask":                  {onlyCRR, []rbacv1.PolicyRule{createRequests}, ""},
		"asks, cannot patch pods":       {ofSidecar, []rbacv1.PolicyRule{createRequests}, denied},
		"asks, can patch pods":          {ofSidecar, []rbacv1.PolicyRule{createRequests, patchPods}, ""},
		"asks, can use mode Native":     {ofSidecar, []rbacv1.PolicyRule{useNative}, ""},
		"asks, can use mode Image only": {ofSidecar, []rbacv1.PolicyRule{createRequests, useImage}, denied},
		"DryRun":                        {func(p *v1alpha1.SidecarTerminationPolicy) { p.Spec.Enforcement = v1alpha1.EnforcementDryRun }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			space := newNamespace(t)
			policy := prefer(space, "p", "proxy")
			tc.change(policy)
			requireDenied(t, author(t, space, tc.rights...).Create(t.Context(), policy), tc.denied, space)
		})
	}
}

func TestNativeWithoutBindingConvertsNothing(t *testing.T) {
	installNative(t)
	c, _ := newClient(t)
	space := newNamespace(t)
	create(t, c, prefer(space, "mesh", "proxy"))
	awaitNative(t)
	binding := &unstructured.Unstructured{}
	binding.SetAPIVersion("admissionregistration.k8s.io/v1")
	binding.SetKind("MutatingAdmissionPolicyBinding")
	binding.SetName("sidecar-termination-native-namespaced")
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "pods to be left alone", func(ctx context.Context) error {
		pod := jobPod(space, "main", "proxy")
		if err := c.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if len(pod.Spec.Containers) != 2 {
			return errors.New("it was converted")
		}
		return nil
	})
}
