// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const deployment = "Deployment sidecar-termination-controller-manager"

// With its defaults the chart installs what the manifest installs, but for the namespace,
// which is the user's, and for Helm's labels.
func TestDefaultsRenderToTheInstallManifest(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(built, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := decode(t, content)
	delete(want, "Namespace "+namespace)
	got := render(t, nil)
	for key := range got {
		if want[key] == nil {
			t.Errorf("%s is in the chart only", key)
		}
	}
	for key, object := range want {
		if got[key] == nil {
			t.Errorf("%s is in the manifest only", key)
			continue
		}
		removeHelm(t, got[key])
		if key == deployment {
			// The chart says what Kubernetes does by default.
			delete(container(t, got), "imagePullPolicy")
		}
		if one, other := text(t, got[key]), text(t, object); one != other {
			t.Errorf("%s differs: chart\n%s\nmanifest\n%s", key, one, other)
		}
	}
}

// removeHelm removes what every object of a release has.
func removeHelm(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	for label, want := range map[string]string{
		"app.kubernetes.io/instance":   "release",
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

func TestNamespaceIsThatOfTheRelease(t *testing.T) {
	objects, err := tryRender(t, everything(), "elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	for key, object := range objects {
		if strings.Contains(text(t, object), namespace) {
			t.Errorf("%s still names %s", key, namespace)
		}
		if found := object.GetNamespace(); found != "" && found != "elsewhere" {
			t.Errorf("%s is in %s", key, found)
		}
	}
}

// What is off leaves neither its flag nor its rights behind.
func TestWhatIsOffIsOffAsInItsComponent(t *testing.T) {
	all := render(t, nil)
	for mode, test := range map[string]struct {
		values     values
		flag, role string
	}{
		"crr":      {values{"modes": values{"crr": "Disabled"}}, "--crr=Disabled", "sidecar-termination-manager-crr-role"},
		"image":    {values{"modes": values{"image": "Disabled"}}, "--image-swap=Disabled", "sidecar-termination-manager-image-role"},
		"podPhase": {values{"modes": values{"podPhase": "Disabled"}}, "--pod-phase=Disabled", "sidecar-termination-manager-pod-phase-role"},
		"prePull":  {values{"prePull": "Disabled"}, "--pre-pull=Disabled", "sidecar-termination-manager-pre-pull-role"},
	} {
		objects := render(t, test.values)
		if !slices.Contains(arguments(t, objects), test.flag) || slices.Contains(arguments(t, all), test.flag) {
			t.Errorf("%s: arguments are %v, and %v when it is on", mode, arguments(t, objects), arguments(t, all))
		}
		for _, key := range []string{"ClusterRole " + test.role, "ClusterRoleBinding " + test.role + "binding"} {
			if objects[key] != nil || all[key] == nil {
				t.Errorf("%s: %s is there when it is off: %t, when it is on: %t", mode, key, objects[key] != nil, all[key] != nil)
			}
		}
	}
}

// The last resort is a flag alone: its mode keeps the rights that it needs.
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

func TestValues(t *testing.T) {
	objects := render(t, everything())
	for _, key := range []string{"ServiceMonitor", "PrometheusRule", "NetworkPolicy", "Service", "ConfigMap"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(objects)), func(found string) bool { return strings.HasPrefix(found, key+" ") }) {
			t.Errorf("no %s is there", key)
		}
	}
	operator := text(t, objects[deployment])
	for _, want := range []string{
		`"replicas":3`,
		`"image":"mirror.example:5000/operator@sha256:` + strings.Repeat("0", 64) + `"`,
		`"imagePullPolicy":"Always"`,
		`"imagePullSecrets":[{"name":"mirror"}]`,
		`{"name":"QUICK_EXIT_IMAGE","value":"mirror.example/quick-exit:v2"}`,
		`{"name":"GOMEMLIMIT","value":"900MiB"}`,
		`"resources":{"limits":{"memory":"1Gi"`,
		`"nodeSelector":{"kubernetes.io/os":"linux"}`,
		`"tolerations":[{"key":"infra","operator":"Exists"}]`,
		`"priorityClassName":"system-cluster-critical"`,
		`"example.com/team":"batch"`,
		`"topologySpreadConstraints":[{"maxSkew":1`,
		`"kubectl.kubernetes.io/default-container":"manager"`,
		`"affinity":{"nodeAffinity":{}`,
	} {
		if !strings.Contains(operator, want) {
			t.Errorf("the Deployment has no %s:\n%s", want, operator)
		}
	}
	for _, want := range []string{"--settle-period=2s", "--pod-phase-max-grace-period=10m", "--max-concurrent-reconciles=32", "--leader-elect=true", "--virtual-node-label=a=b,c"} {
		if !slices.Contains(arguments(t, objects), want) {
			t.Errorf("arguments are %v, want %s among them", arguments(t, objects), want)
		}
	}
	// Prometheus fills in these braces, not Helm.
	rule := text(t, objects["PrometheusRule sidecar-termination-operator"])
	if !strings.Contains(rule, "{{ $labels.") && !strings.Contains(rule, "{{ $value") {
		t.Errorf("the alerts lost their templates: %s", rule)
	}
	// And these Grafana.
	board, err := os.ReadFile(filepath.Join(repository, "config", "components", "dashboard", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	rendered, _, _ := unstructured.NestedString(objects["ConfigMap sidecar-termination-dashboard"].Object, "data", "sidecar-termination-operator.json")
	if rendered != string(board) {
		t.Errorf("the dashboard of the chart is another one: %s", rendered)
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
		"replica":         {"replica": 3},
		"replicas":        {"replicas": "two"},
		"modes/podPhase":  {"modes": values{"podPhase": "Off"}},
		"modes":           {"modes": values{"phase": "Enabled"}},
		"--settle-period": {"flags": values{"--settle-period": "2s"}},
		"image/digest":    {"image": values{"digest": "latest"}},
		"pullPolicy":      {"image": values{"pullPolicy": "Sometimes"}},
	} {
		if _, err := tryRender(t, given, namespace); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error is %v, want one that names %s", given, err, want)
		}
	}
}

// everything changes each value of the chart.
func everything() values {
	return values{
		"replicas": 3,
		"image": values{
			"repository": "mirror.example:5000/operator", "digest": "sha256:" + strings.Repeat("0", 64), "pullPolicy": "Always",
		},
		"imagePullSecrets": []any{values{"name": "mirror"}},
		"quickExitImage":   "mirror.example/quick-exit:v2",
		"flags": values{
			"settle-period": "2s", "pod-phase-max-grace-period": "10m", "max-concurrent-reconciles": 32, "leader-elect": true, "virtual-node-label": "a=b,c",
		},
		"resources":                 values{"limits": values{"memory": "1Gi"}},
		"goMemoryLimit":             "900MiB",
		"nodeSelector":              values{"kubernetes.io/os": "linux"},
		"tolerations":               []any{values{"key": "infra", "operator": "Exists"}},
		"affinity":                  values{"podAntiAffinity": nil, "nodeAffinity": values{}},
		"topologySpreadConstraints": []any{values{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}},
		"priorityClassName":         "system-cluster-critical",
		"podAnnotations":            values{"example.com/a": "b"},
		"podLabels":                 values{"example.com/team": "batch"},
		"serviceMonitor":            values{"enabled": true},
		"alerts":                    values{"enabled": true},
		"dashboard":                 values{"enabled": true},
		"networkPolicy":             values{"enabled": true},
	}
}

func container(t *testing.T, objects map[string]*unstructured.Unstructured) map[string]any {
	t.Helper()
	containers, _, err := unstructured.NestedFieldNoCopy(objects[deployment].Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	return containers.([]any)[0].(map[string]any)
}

func arguments(t *testing.T, objects map[string]*unstructured.Unstructured) []string {
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
