// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	deployment = "Deployment sidecar-termination-controller-manager"
	// watched is the namespace of the overlay for single namespaces.
	watched = "batch"
)

// The chart installs what the kustomization installs, apart from the namespace and Helm's labels.
func TestChartEqualsKustomization(t *testing.T) {
	on, off := values{"enabled": true}, values{"enabled": false}
	for name, test := range map[string]struct {
		values     values
		base       string
		components []string
	}{
		"defaults":     {nil, "default", nil},
		"no CRR":       {values{"modes": values{"crr": "Disabled"}}, "default", []string{"no-crr"}},
		"no Image":     {values{"modes": values{"image": "Disabled"}}, "default", []string{"no-image"}},
		"no PodPhase":  {values{"modes": values{"podPhase": "Disabled"}}, "default", []string{"no-pod-phase"}},
		"no pre-pull":  {values{"prePull": "Disabled"}, "default", []string{"no-pre-pull"}},
		"before 1.36":  {nil, "overlays/before-1.36", nil},
		"no admission": {values{"admissionPolicies": off}, "default", nil},
		"additions": {
			values{"serviceMonitor": on, "prometheusRule": on, "dashboard": on, "networkPolicy": on, "includeInjected": true, "tenants": true},
			"default", []string{"service-monitor", "alerts", "dashboard", "network-policy", "include-injected", "tenants"},
		},
		"everything off": {
			values{"modes": values{"crr": "Disabled", "image": "Disabled", "podPhase": "Disabled"}, "prePull": "Disabled", "admissionPolicies": off},
			"default", []string{"no-crr", "no-image", "no-pod-phase", "no-pre-pull"},
		},
		"namespaced": {values{"watchNamespaces": []any{watched}, "flags": values{"node-kind": "Unknown"}}, "overlays/namespaced", nil},
	} {
		t.Run(name, func(t *testing.T) {
			want := kustomization(t, test.base, test.components)
			delete(want, "Namespace "+namespace)
			if test.values["admissionPolicies"] != nil {
				for object := range want {
					if limits.MatchString(object) {
						delete(want, object)
					}
				}
			}
			minor := "36"
			if test.base == "overlays/before-1.36" {
				minor = "35"
			}
			got := render(t, test.values, onKubernetes(minor))
			// The prefix of a kustomization would change its name.
			if got[lease] == nil {
				t.Errorf("the release leaves %s behind", lease)
			}
			delete(got, lease)
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

// limits are the admission policies that a value turns off.
var limits = regexp.MustCompile(`^ValidatingAdmissionPolicy(Binding)? sidecar-termination-(mode|operator)-`)

// sameText compares texts without blank lines, which kustomize adds to folded texts with indented lines.
func sameText(one, other string) bool {
	return strings.ReplaceAll(one, "\n\n", "\n") == strings.ReplaceAll(other, "\n\n", "\n")
}

// kustomization returns the objects of a directory of config with components.
func kustomization(t *testing.T, base string, components []string) objects {
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
	overlay := &types.Kustomization{Resources: []string{filepath.Join(config, base)}}
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
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		t.Fatal(err)
	}
	if content, err = rendered.AsYaml(); err != nil {
		t.Fatal(err)
	}
	return decode(t, content)
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
	// The overlay for single namespaces labels only what it shares with config/default.
	if object.GetNamespace() == watched {
		if labels["app.kubernetes.io/part-of"] != chartName {
			t.Errorf("%s %s has labels %v", object.GetKind(), object.GetName(), labels)
		}
		labels = nil
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
}

// An old API server refuses the kind of the outcome policy, and an operator for single namespaces has no object of the cluster. The policies that
// keep outcomes and protect marks are in every other installation.
func TestOutcomePolicyNeedsItsKind(t *testing.T) {
	outcomeIs := func(way string) values { return values{"admissionPolicies": values{"outcome": way}} }
	for name, tc := range map[string]struct {
		minor  string
		values values
		want   bool
		note   string
	}{
		"1.36":                   {"36", nil, true, ""},
		"1.35":                   {"35", nil, false, "it needs Kubernetes 1.36 and this is v1.35.0"},
		"1.35, Enabled":          {"35", outcomeIs("Enabled"), true, ""},
		"1.36, Disabled":         {"36", outcomeIs("Disabled"), false, "by admissionPolicies.outcome"},
		"no validating policies": {"36", values{"admissionPolicies": values{"enabled": false}}, true, ""},
		"no mode PodPhase":       {"36", values{"modes": values{"podPhase": "Disabled"}}, true, ""},
		"single namespaces":      {"35", values{"watchNamespaces": []any{watched}}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := install(t, load(t), tc.values, onKubernetes(tc.minor))
			if err != nil {
				t.Fatal(err)
			}
			got := decode(t, []byte(rendered.Manifest))
			for _, object := range outcome {
				if got[object] != nil != tc.want {
					t.Errorf("%s: rendered %t, want %t", object, got[object] != nil, tc.want)
				}
			}
			for _, object := range guards {
				if want := tc.values["watchNamespaces"] == nil; got[object] != nil != want {
					t.Errorf("%s: rendered %t, want %t", object, got[object] != nil, want)
				}
			}
			const said = "sidecar-termination-outcome is left out, "
			for where, content := range map[string]string{"notes": rendered.Info.Notes, "manifest": rendered.Manifest} {
				if strings.Contains(content, said) != (tc.note != "") || !strings.Contains(content, tc.note) {
					t.Errorf("the %s do not say %q: %s", where, tc.note, content)
				}
			}
		})
	}
}

// Packaging adds the digests of a release to the chart's annotations and values.
func TestReleaseRunsImageByDigest(t *testing.T) {
	const repository, tag = "ghcr.io/sidecar-termination/sidecar-termination-operator", "v0.1.0"
	digest := "@sha256:" + strings.Repeat("0", 64)
	released := load(t)
	annotation := released.Metadata.Annotations["artifacthub.io/images"]
	released.Metadata.Annotations["artifacthub.io/images"] = strings.Replace(annotation, repository+":"+tag, repository+":"+tag+digest, 1)
	for name, tc := range map[string]struct {
		values values
		want   string
	}{
		"default":  {nil, repository + ":" + tag + digest},
		"mirrored": {values{"imageRegistry": "mirror.example"}, "mirror.example/sidecar-termination/sidecar-termination-operator:" + tag + digest},
		"tag":      {values{"image": values{"tag": "v9"}}, repository + ":v9"},
		"digest":   {values{"image": values{"digest": "sha256:" + strings.Repeat("1", 64)}}, repository + "@sha256:" + strings.Repeat("1", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := install(t, released, tc.values)
			if err != nil {
				t.Fatal(err)
			}
			requireFields(t, decode(t, []byte(rendered.Manifest)), map[string]any{firstContainer + "image": tc.want})
		})
	}
}

func TestNamespaceIsReleaseNamespace(t *testing.T) {
	installed := render(t, everything, as(chartName, "elsewhere"))
	for key, object := range installed {
		if strings.Contains(text(t, object), namespace) {
			t.Errorf("%s still names %s", key, namespace)
		}
		if found := object.GetNamespace(); found != "" && found != "elsewhere" {
			t.Errorf("%s is in %s", key, found)
		}
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for want, given := range map[string]values{
		"replica":           {"replica": 3},
		"replicas":          {"replicas": "two"},
		"watchNamespaces/0": {"watchNamespaces": []any{"batch.etl"}},
		"modes/podPhase":    {"modes": values{"podPhase": "Off"}},
		"quick-exit-imag":   {"flags": values{"quick-exit-imag": "a"}},
		"crr":               {"flags": values{"crr": "Disabled"}},
		"image/digest":      {"image": values{"digest": "latest"}},
		"fullnameOverride":  {"fullnameOverride": strings.Repeat("a", 37)},
		"env/0/name":        {"env": []any{values{"name": "GOMEMLIMIT", "value": "1GiB"}}},
		"quickExitImage":    {"quickExitImage": "Bad Image"},
		"resources/limits":  {"resources": values{"limits": values{"memory": "half"}}},
		// The API server accepts no phase that the operator sets later, and ports and the number of leaders are those of other objects.
		"pod-phase-max-grace-period": {"flags": values{"pod-phase-max-grace-period": "5h"}},
		"metrics-bind-address":       {"flags": values{"metrics-bind-address": ":1"}},
		"health-probe-bind-address":  {"flags": values{"health-probe-bind-address": ":1"}},
		"leader-elect":               {"flags": values{"leader-elect": false}},
	} {
		if _, err := install(t, load(t), given); err == nil || !strings.Contains(err.Error(), want) {
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
