// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const deployment = "Deployment sidecar-termination-controller-manager"

// The chart installs what config/default and its components install, apart from the namespace and Helm's labels.
func TestChartEqualsKustomization(t *testing.T) {
	for name, test := range map[string]struct {
		values     values
		components []string
	}{
		"defaults":        {},
		"no CRR":          {values{"modes": values{"crr": "Disabled"}}, []string{"no-crr"}},
		"no Image":        {values{"modes": values{"image": "Disabled"}}, []string{"no-image"}},
		"no PodPhase":     {values{"modes": values{"podPhase": "Disabled"}}, []string{"no-pod-phase"}},
		"no pre-pull":     {values{"prePull": "Disabled"}, []string{"no-pre-pull"}},
		"no admission":    {values{"admissionPolicies": values{"enabled": false}}, []string{"no-admission"}},
		"service monitor": {values{"serviceMonitor": values{"enabled": true}}, []string{"service-monitor"}},
		"alerts":          {values{"prometheusRule": values{"enabled": true}}, []string{"alerts"}},
		"dashboard":       {values{"dashboard": values{"enabled": true}}, []string{"dashboard"}},
		"network policy":  {values{"networkPolicy": values{"enabled": true}}, []string{"network-policy"}},
		"everything off": {
			values{"modes": values{"crr": "Disabled", "image": "Disabled", "podPhase": "Disabled"}, "prePull": "Disabled", "admissionPolicies": values{"enabled": false}},
			[]string{"no-crr", "no-image", "no-pod-phase", "no-pre-pull", "no-admission"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := kustomization(t, test.components)
			delete(want, "Namespace "+namespace)
			got := render(t, test.values)
			for _, object := range got {
				removeHelm(t, object)
			}
			// The chart sets the default of Kubernetes.
			delete(container(t, got), "imagePullPolicy")
			if difference := cmp.Diff(want, got, cmp.Comparer(sameText)); difference != "" {
				t.Errorf("objects (-kustomization +chart):\n%s", difference)
			}
		})
	}
}

// The chart for single namespaces installs what the overlay for them installs.
func TestChartEqualsNamespacedOverlay(t *testing.T) {
	want := build(t, filepath.Join(repository, "config", "overlays", "namespaced"))
	delete(want, "Namespace "+namespace)
	got := render(t, values{"watchNamespaces": []any{"batch"}, "flags": values{"node-kind": "Unknown"}})
	for key, object := range got {
		removeHelm(t, object)
		// The overlay labels only what it shares with config/default.
		if object.GetNamespace() == "batch" {
			if object.GetLabels()["app.kubernetes.io/part-of"] != chartName {
				t.Errorf("%s has labels %v", key, object.GetLabels())
			}
			object.SetLabels(nil)
		}
	}
	delete(container(t, got), "imagePullPolicy")
	if difference := cmp.Diff(want, got, cmp.Comparer(sameText)); difference != "" {
		t.Errorf("objects (-overlay +chart):\n%s", difference)
	}
}

func TestRolesInEachWatchedNamespace(t *testing.T) {
	installed := renderAs(t, release{"team-a", "system", newest}, values{
		"watchNamespaces": []any{"batch", "etl", "batch"}, "modes": values{"image": "Disabled"}, "serviceMonitor": values{"enabled": true},
	})
	var got []string
	for _, object := range installed {
		switch object.GetKind() {
		case "Role":
			got = append(got, object.GetNamespace()+"/"+object.GetName())
		case "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy":
			t.Errorf("%s %s needs permissions in the cluster", object.GetKind(), object.GetName())
		}
	}
	slices.Sort(got)
	want := []string{
		"batch/team-a-sidecar-termination-manager-pod-phase-role", "batch/team-a-sidecar-termination-manager-role",
		"etl/team-a-sidecar-termination-manager-pod-phase-role", "etl/team-a-sidecar-termination-manager-role",
		"system/team-a-sidecar-termination-leader-election-role",
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("roles (-want +got):\n%s", difference)
	}
	endpoints, _, _ := unstructured.NestedSlice(installed["ServiceMonitor team-a-sidecar-termination-controller-manager"].Object, "spec", "endpoints")
	if endpoint := endpoints[0].(map[string]any); endpoint["scheme"] != "http" || endpoint["bearerTokenFile"] != nil || endpoint["tlsConfig"] != nil {
		t.Errorf("metrics are scraped as %v", endpoint)
	}
}

// sameText compares texts without blank lines, which kustomize adds to folded texts with indented lines.
func sameText(one, other string) bool {
	return strings.ReplaceAll(one, "\n\n", "\n") == strings.ReplaceAll(other, "\n\n", "\n")
}

// kustomization returns the objects of config/default with components.
func kustomization(t *testing.T, components []string) objects {
	t.Helper()
	directory := t.TempDir()
	// kustomize refuses absolute paths.
	config, err := filepath.Abs(filepath.Join(repository, "config"))
	if err != nil {
		t.Fatal(err)
	}
	if config, err = filepath.Rel(directory, config); err != nil {
		t.Fatal(err)
	}
	overlay := &types.Kustomization{Resources: []string{filepath.Join(config, "default")}}
	for _, component := range components {
		overlay.Components = append(overlay.Components, filepath.Join(config, "components", component))
	}
	content, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return build(t, directory)
}

// build returns the objects of a kustomization.
func build(t *testing.T, directory string) objects {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		t.Fatal(err)
	}
	content, err := rendered.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, content)
}

// The chart's version is the version of the images that it installs.
func TestChartVersion(t *testing.T) {
	metadata := load(t).Metadata
	image, _ := container(t, render(t, nil))["image"].(string)
	if !strings.HasSuffix(image, ":"+metadata.AppVersion) || metadata.AppVersion != "v"+metadata.Version ||
		filepath.Base(archive(t)) != chartName+"-"+metadata.Version+".tgz" {
		t.Errorf("version %s, appVersion %s, image %s", metadata.Version, metadata.AppVersion, image)
	}
}

// removeHelm removes what every object of a release has.
func removeHelm(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	for label, want := range map[string]string{
		"app.kubernetes.io/instance":   chartName,
		"app.kubernetes.io/managed-by": "Helm",
		"helm.sh/chart":                chartName + "-" + load(t).Metadata.Version,
	} {
		if labels[label] != want {
			t.Errorf("%s %s: label %s is %q, want %q", object.GetKind(), object.GetName(), label, labels[label], want)
		}
		delete(labels, label)
	}
	if object.GetKind() == "CustomResourceDefinition" {
		if annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s would be deleted with the release, and all policies with it", object.GetName())
		}
		delete(annotations, "helm.sh/resource-policy")
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
}

func TestNamespaceIsReleaseNamespace(t *testing.T) {
	installed := renderAs(t, release{chartName, "elsewhere", newest}, everything())
	for key, object := range installed {
		if strings.Contains(text(t, object), namespace) {
			t.Errorf("%s still names %s", key, namespace)
		}
		if found := object.GetNamespace(); found != "" && found != "elsewhere" {
			t.Errorf("%s is in %s", key, found)
		}
	}
}

// LastResort changes only a flag: mode PodPhase keeps its permissions.
func TestPodPhaseAsLastResort(t *testing.T) {
	objects := render(t, values{"modes": values{"podPhase": "LastResort"}})
	if args := arguments(t, objects); !slices.Contains(args, "--pod-phase=LastResort") || slices.Contains(args, "--pod-phase=Disabled") {
		t.Errorf("arguments are %v", args)
	}
	for _, key := range []string{
		"ClusterRole sidecar-termination-manager-pod-phase-role", "ClusterRoleBinding sidecar-termination-manager-pod-phase-rolebinding",
		"ValidatingAdmissionPolicy sidecar-termination-phase-guard",
	} {
		if objects[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	if args := arguments(t, render(t, nil)); slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--pod-phase=") }) {
		t.Errorf("arguments by default are %v", args)
	}
}

func TestTemplatesOfOthersAreKept(t *testing.T) {
	objects := render(t, everything())
	// Prometheus fills in these braces, not Helm.
	rule := text(t, objects["PrometheusRule sidecar-termination-operator"])
	if !strings.Contains(rule, "{{ $labels.") || !strings.Contains(rule, "{{ $value") {
		t.Errorf("the alerts lost their templates: %s", rule)
	}
	// And these Grafana.
	board, err := os.ReadFile(filepath.Join(repository, "config", "components", "dashboard", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	rendered, _, _ := unstructured.NestedString(objects["ConfigMap sidecar-termination-dashboard"].Object, "data", "sidecar-termination-operator.json")
	if difference := cmp.Diff(string(board), rendered); difference != "" {
		t.Errorf("the dashboard (-file +chart):\n%s", difference)
	}
}

func TestWhatIsOff(t *testing.T) {
	objects := render(t, values{
		"replicas":            1,
		"crds":                values{"install": false},
		"podDisruptionBudget": values{"enabled": true},
		"affinity":            values{"podAntiAffinity": nil},
		"resources":           values{"limits": values{"memory": nil}},
	})
	for key := range objects {
		for _, kind := range []string{"CustomResourceDefinition", "PodDisruptionBudget", "ServiceMonitor", "NetworkPolicy", "PrometheusRule", "ConfigMap"} {
			if strings.HasPrefix(key, kind+" ") {
				t.Errorf("%s is there", key)
			}
		}
	}
	if operator := text(t, objects[deployment]); strings.Contains(operator, "affinity") || strings.Contains(operator, `"limits":{"memory"`) {
		t.Errorf("defaults cannot be removed: %s", operator)
	}
	kept := render(t, values{"crds": values{"keep": false}})
	if got := kept["CustomResourceDefinition sidecarterminationpolicies.sidecartermination.dev"].GetAnnotations()["helm.sh/resource-policy"]; got != "" {
		t.Errorf("definitions are kept: %s", got)
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for want, given := range map[string]values{
		"replica":                {"replica": 3},
		"watchNamespaces/0":      {"watchNamespaces": []any{"batch.etl"}},
		"replicas":               {"replicas": "two"},
		"modes/podPhase":         {"modes": values{"podPhase": "Off"}},
		"modes":                  {"modes": values{"phase": "Enabled"}},
		"--stabilization-window": {"flags": values{"--stabilization-window": "2s"}},
		"image/digest":           {"image": values{"digest": "latest"}},
		"pullPolicy":             {"image": values{"pullPolicy": "Sometimes"}},
		"imageRegistry":          {"imageRegistry": "https://mirror.example"},
		"fullnameOverride":       {"fullnameOverride": strings.Repeat("a", 37)},
		"env/0/name":             {"env": []any{values{"name": "GOMEMLIMIT", "value": "1GiB"}}},
		"commonLabels/a":         {"commonLabels": values{"a": 1}},
		"minAvailable":           {"podDisruptionBudget": values{"minAvailable": "one"}},
		"serviceMonitor":         {"serviceMonitor": values{"relabeling": []any{}}},
	} {
		if _, err := tryRender(t, documented, given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error is %v, want one that names %s", given, err, want)
		}
	}
}

func container(t *testing.T, objects objects) map[string]any {
	t.Helper()
	containers, _, err := unstructured.NestedFieldNoCopy(objects[deployment].Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	return containers.([]any)[0].(map[string]any)
}

func arguments(t *testing.T, objects objects) []string {
	t.Helper()
	found, _, err := unstructured.NestedStringSlice(container(t, objects), "args")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// text returns an object with its fields in order and characters as they are.
func text(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	content := &strings.Builder{}
	encoder := json.NewEncoder(content)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object.Object); err != nil {
		t.Fatal(err)
	}
	return content.String()
}
