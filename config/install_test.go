// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/sidecar-termination/operator/internal/settings"
)

// clusterScoped are the cluster-scoped kinds of the installation.
var clusterScoped = []string{
	"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

// installations returns the kustomizations that install the operator for the whole cluster. namespaced_test.go tests the other one.
func installations() []string {
	overlays, err := filepath.Glob("overlays/*")
	if err != nil {
		panic(err)
	}
	overlays = slices.DeleteFunc(overlays, func(overlay string) bool { return overlay == namespacedOverlay })
	return append([]string{"default"}, overlays...)
}

func TestObjectsUseOperatorNamespace(t *testing.T) {
	for _, directory := range installations() {
		rendered := render(t, directory)
		if got := only[corev1.Namespace](t, rendered, "Namespace").Name; got != namespace {
			t.Errorf("%s: Namespace %s, want %s", directory, got, namespace)
		}
		for _, object := range rendered {
			want := namespace
			if slices.Contains(clusterScoped, object.GetKind()) {
				want = ""
			}
			if got := object.GetNamespace(); got != want {
				t.Errorf("%s: %s %s has namespace %q, want %q", directory, object.GetKind(), object.GetName(), got, want)
			}
		}
	}
}

// Policies that exist before the admission policies are never checked.
func TestAdmissionPoliciesPrecedeCRDs(t *testing.T) {
	for _, directory := range installations() {
		admission, first := 0, ""
		for _, object := range render(t, directory) {
			switch object.GetKind() {
			case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
				if admission++; first != "" {
					t.Errorf("%s: %s %s comes after a %s", directory, object.GetKind(), object.GetName(), first)
				}
			case "CustomResourceDefinition", "ClusterRole", "Deployment":
				first = cmp.Or(first, object.GetKind())
			}
		}
		if admission == 0 || first != "CustomResourceDefinition" {
			t.Errorf("%s: %d admission policies and bindings, then a %s", directory, admission, first)
		}
	}
}

func TestObjectNamesHaveProjectPrefix(t *testing.T) {
	for _, object := range render(t, "default") {
		name := object.GetName()
		if !strings.HasPrefix(name, "sidecar-termination-") && !strings.HasSuffix(name, ".sidecartermination.dev") {
			t.Errorf("%s %s: the name has no project prefix", object.GetKind(), name)
		}
		if got := object.GetLabels()["app.kubernetes.io/name"]; got != settings.Name {
			t.Errorf("%s %s: label app.kubernetes.io/name is %q", object.GetKind(), name, got)
		}
	}
}

// The phase is written at once only if the phase guard is installed.
func TestStabilizationWindowFitsThePhaseGuard(t *testing.T) {
	withoutGuard := renderOverlay(t, "resources: [CONFIG/default]\ncomponents: [CONFIG/components/no-admission]\n")
	for name, rendered := range map[string]resources{"default": render(t, "default"), "no-admission": withoutGuard} {
		args := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template.Spec.Containers[0].Args
		want := "--stabilization-window=1500ms"
		if rendered.has("ValidatingAdmissionPolicy", "sidecar-termination-phase-guard") {
			want = "--stabilization-window=0s"
		}
		var last string
		for _, arg := range args {
			if strings.HasPrefix(arg, "--stabilization-window=") {
				last = arg
			}
		}
		if last != want {
			t.Errorf("%s: %q is effective, want %q", name, last, want)
		}
	}
}

func TestOperatorRunsUnprivileged(t *testing.T) {
	for _, directory := range installations() {
		spec := only[appsv1.Deployment](t, render(t, directory), "Deployment").Spec.Template.Spec
		pod, container := spec.SecurityContext, spec.Containers[0].SecurityContext
		for what, holds := range map[string]bool{
			"non-root user":                  *pod.RunAsNonRoot && *pod.RunAsUser > 0,
			"seccomp profile RuntimeDefault": pod.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
			"no privilege escalation":        !*container.AllowPrivilegeEscalation,
			"no capabilities":                slices.Equal(container.Capabilities.Drop, []corev1.Capability{"ALL"}) && container.Capabilities.Add == nil,
			"read-only root filesystem":      *container.ReadOnlyRootFilesystem,
			"no volumes":                     len(spec.Volumes) == 0,
		} {
			if !holds {
				t.Errorf("%s: the operator lacks: %s", directory, what)
			}
		}
	}
}

func TestOnlyOperatorPodMountsToken(t *testing.T) {
	renderings := map[string]resources{}
	for _, directory := range directories(t, types.KustomizationKind) {
		renderings[directory] = render(t, directory)
	}
	for _, directory := range directories(t, types.ComponentKind) {
		renderings[directory] = renderOverlay(t, componentUse(directory))
	}
	operators, accounts := 0, 0
	for directory, rendered := range renderings {
		for _, account := range ofKind[corev1.ServiceAccount](t, rendered, "ServiceAccount") {
			accounts++
			if mounts := account.AutomountServiceAccountToken; mounts == nil || *mounts {
				t.Errorf("%s: pods with ServiceAccount %s mount a token by default", directory, account.Name)
			}
		}
		for _, object := range rendered {
			pod := podSpec(t, object)
			if pod == nil {
				continue
			}
			mounts, account := pod["automountServiceAccountToken"], pod["serviceAccountName"]
			switch operator := object.GetKind() == "Deployment" && object.GetName() == deployment; {
			case operator:
				operators++
				if mounts != true || account != deployment {
					t.Errorf("%s: the operator's pod has automountServiceAccountToken %v, ServiceAccount %v", directory, mounts, account)
				}
			case mounts != false || account != nil:
				t.Errorf("%s: the pod of %s %s has automountServiceAccountToken %v, ServiceAccount %v", directory, object.GetKind(), object.GetName(), mounts, account)
			}
		}
	}
	if least := len(installations()); operators < least || accounts < least {
		t.Errorf("found %d operators and %d ServiceAccounts in %d renderings", operators, accounts, len(renderings))
	}
}

// podSpec returns the object's pod spec, or nil.
func podSpec(t *testing.T, object unstructured.Unstructured) map[string]any {
	t.Helper()
	for _, path := range [][]string{
		{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}, {"spec"},
	} {
		spec, found, err := unstructured.NestedMap(object.Object, path...)
		if err != nil {
			t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
		if _, containers := spec["containers"]; found && containers {
			return spec
		}
	}
	return nil
}

func TestSelectorsMatchOperatorPods(t *testing.T) {
	rendered := render(t, "default")
	operator := only[appsv1.Deployment](t, rendered, "Deployment")
	budget := only[policyv1.PodDisruptionBudget](t, rendered, "PodDisruptionBudget")
	spread := operator.Spec.Template.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0]
	for what, selector := range map[string]*metav1.LabelSelector{
		"the Deployment":          operator.Spec.Selector,
		"the PodDisruptionBudget": budget.Spec.Selector,
		"the pod anti-affinity":   spread.PodAffinityTerm.LabelSelector,
	} {
		compiled, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatalf("selector of %s: %v", what, err)
		}
		if compiled.Empty() || !compiled.Matches(labels.Set(operator.Spec.Template.Labels)) {
			t.Errorf("the selector of %s (%s) does not match the operator's pods", what, compiled)
		}
	}
	if replicas := *operator.Spec.Replicas; int(replicas) <= budget.Spec.MinAvailable.IntValue() {
		t.Errorf("%d replicas with minAvailable %s block node drains", replicas, budget.Spec.MinAvailable)
	}
}

func TestProbesUseNamedPorts(t *testing.T) {
	for _, directory := range installations() {
		container := only[appsv1.Deployment](t, render(t, directory), "Deployment").Spec.Template.Spec.Containers[0]
		ports := map[string]int32{}
		for _, port := range container.Ports {
			ports[port.Name] = port.ContainerPort
		}
		if ports["health"] != 8081 || ports["metrics"] != 8443 {
			t.Errorf("%s: ports are %v, want health 8081 and metrics 8443", directory, ports)
		}
		for path, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
			if get := probe.HTTPGet; get.Path != path || get.Port.StrVal != "health" {
				t.Errorf("%s: a probe uses %s on port %s, want %s on port health", directory, get.Path, get.Port.String(), path)
			}
		}
	}
}

func TestGOMEMLIMITBelowMemoryLimit(t *testing.T) {
	container := only[appsv1.Deployment](t, render(t, "default"), "Deployment").Spec.Template.Spec.Containers[0]
	// GOMEMLIMIT has unit MiB, Kubernetes Mi.
	soft := resource.MustParse(strings.TrimSuffix(environment(container)["GOMEMLIMIT"], "B"))
	hard := container.Resources.Limits.Memory()
	if ratio := soft.AsApproximateFloat64() / hard.AsApproximateFloat64(); ratio < 0.8 || ratio > 0.95 {
		t.Errorf("GOMEMLIMIT %s is %.2f of the memory limit %s, want 0.8 to 0.95", &soft, ratio, hard)
	}
	if _, limited := container.Resources.Limits[corev1.ResourceCPU]; limited {
		t.Error("the operator has a CPU limit")
	}
}

func TestInstalledImages(t *testing.T) {
	for directory, want := range map[string][2]string{
		"default": {
			"ghcr.io/sidecar-termination/sidecar-termination-operator:v0.1.0",
			"ghcr.io/sidecar-termination/quick-exit:v0.1.0",
		},
		"overlays/local": {"localhost/sidecar-termination-operator:dev", "localhost/quick-exit:1"},
	} {
		container := only[appsv1.Deployment](t, render(t, directory), "Deployment").Spec.Template.Spec.Containers[0]
		if got := [2]string{container.Image, environment(container)["QUICK_EXIT_IMAGE"]}; got != want {
			t.Errorf("%s: images are %v, want %v", directory, got, want)
		}
		if !slices.Contains(container.Args, "--quick-exit-image=$(QUICK_EXIT_IMAGE)") {
			t.Errorf("%s: no flag for the quick-exit image: %v", directory, container.Args)
		}
	}
}

func TestLocalOverlayUsesLoopback(t *testing.T) {
	rendered := render(t, "overlays/local")
	operator := only[appsv1.Deployment](t, rendered, "Deployment").Spec
	pod, container := operator.Template.Spec, operator.Template.Spec.Containers[0]
	for what, holds := range map[string]bool{
		"one replica":              *operator.Replicas == 1,
		"strategy Recreate":        operator.Strategy.Type == appsv1.RecreateDeploymentStrategyType && operator.Strategy.RollingUpdate == nil,
		"hostNetwork":              pod.HostNetwork && pod.DNSPolicy == corev1.DNSDefault,
		"no image pull":            container.ImagePullPolicy == corev1.PullNever,
		"metrics on loopback":      slices.Contains(container.Args, "--metrics-bind-address=127.0.0.1:8443"),
		"probes on loopback":       slices.Contains(container.Args, "--health-probe-bind-address=127.0.0.1:8081"),
		"liveness on loopback":     container.LivenessProbe.HTTPGet.Host == "127.0.0.1",
		"readiness on loopback":    container.ReadinessProbe.HTTPGet.Host == "127.0.0.1",
		"the API server's address": environment(container)["KUBERNETES_SERVICE_HOST"] == "127.0.0.1",
		"the API server's port":    environment(container)["KUBERNETES_SERVICE_PORT"] == "6443",
		"no disruption budget":     len(ofKind[policyv1.PodDisruptionBudget](t, rendered, "PodDisruptionBudget")) == 0,
	} {
		if !holds {
			t.Errorf("the local overlay lacks: %s", what)
		}
	}
}

func TestOnlyLocalOverlayRelaxesPodSecurity(t *testing.T) {
	for directory, want := range map[string]string{"default": "restricted", "overlays/local": "privileged"} {
		got := only[corev1.Namespace](t, render(t, directory), "Namespace").Labels["pod-security.kubernetes.io/enforce"]
		if got != want {
			t.Errorf("%s: pod security level %q, want %q", directory, got, want)
		}
	}
}

func TestImagesFromMirror(t *testing.T) {
	rendered := renderOverlay(t, `
resources: [CONFIG/default, CONFIG/samples]
components: [CONFIG/kustomize/component]
images:
  - {name: ghcr.io/sidecar-termination/sidecar-termination-operator, newName: mirror.example/operator}
  - {name: ghcr.io/sidecar-termination/quick-exit, newName: mirror.example/quick-exit, newTag: v9}
  - {name: registry.example/quick-exit, newName: mirror.example/sidecars}
`)
	container := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template.Spec.Containers[0]
	if want := "mirror.example/operator:v0.1.0"; container.Image != want {
		t.Errorf("the operator's image is %s, want %s", container.Image, want)
	}
	if got, want := environment(container)["QUICK_EXIT_IMAGE"], "mirror.example/quick-exit:v9"; got != want {
		t.Errorf("the quick-exit image is %s, want %s", got, want)
	}
	if got := environment(container)["GOMEMLIMIT"]; got != "460MiB" {
		t.Errorf("GOMEMLIMIT was rewritten: %s", got)
	}
	if got, want := policy(t, rendered, "per-sidecar").Spec.Sidecars[2].Image, "mirror.example/sidecars:v1"; got != want {
		t.Errorf("the image in the policy is %s, want %s", got, want)
	}
}

// writeFiles writes a user's files into a new directory. CONFIG in kustomization.yaml stands for this directory.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	directory, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Rel(directory, here)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		file := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "kustomization.yaml" {
			content = strings.ReplaceAll(content, "CONFIG", config)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// environment returns the container's environment variables.
func environment(container corev1.Container) map[string]string {
	variables := map[string]string{}
	for _, variable := range container.Env {
		variables[variable.Name] = variable.Value
	}
	return variables
}
