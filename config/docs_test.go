// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	block  = regexp.MustCompile("(?s)```yaml\n# (\\S+\\.yaml)\n(.*?)```")
	remote = regexp.MustCompile(`https://github\.com/sidecar-termination/operator//config/(\S+)\?ref=v0\.1\.0`)
	metric = regexp.MustCompile("(?m)^\\| `(sidecar_termination_[a-z_]+)` \\| [a-z]+ \\|([^|]*)\\|")
)

// pages returns the files of each kustomization in docs/kustomize.md. Each starts with its kustomization.yaml.
func pages(t *testing.T) []map[string]string {
	t.Helper()
	content, err := os.ReadFile("../docs/kustomize.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]string
	for _, match := range block.FindAllStringSubmatch(string(content), -1) {
		name, text := match[1], remote.ReplaceAllString(match[2], "CONFIG/$1")
		if name == "kustomization.yaml" {
			all = append(all, map[string]string{})
		}
		all[len(all)-1][name] = text
	}
	if blocks := strings.Count(string(content), "```yaml"); len(block.FindAllString(string(content), -1)) != blocks {
		t.Errorf("some of the %d YAML blocks do not start with their file name", blocks)
	}
	return all
}

func TestGuideKustomizationsRender(t *testing.T) {
	all := pages(t)
	if len(all) < 5 {
		t.Fatalf("found %d kustomizations", len(all))
	}
	for _, files := range all {
		if rendered := render(t, writeFiles(t, files)); len(rendered) == 0 {
			t.Errorf("renders nothing:\n%s", files["kustomization.yaml"])
		}
	}
}

func TestGuideExamples(t *testing.T) {
	all := pages(t)
	installed := render(t, writeFiles(t, all[0]))
	if installed.has("ClusterRole", "sidecar-termination-manager-image-role") || !installed.has("PrometheusRule", "sidecar-termination-operator") {
		t.Error("the first example installs mode Image or no alerts")
	}
	spec := policy(t, render(t, writeFiles(t, all[1])), "fluent-bit").Spec.PolicySpec
	if got := sidecar(t, spec, "fluent-bit"); *got.DrainSeconds != 30 || got.ExitCodes == "" || len(spec.Sidecars) != 2 {
		t.Errorf("the preset is patched to %+v", spec)
	}
	if clusterPolicy(t, render(t, writeFiles(t, all[2])), "istio-proxy").Spec.NamespaceSelector == nil {
		t.Error("the cluster policy has no namespaceSelector")
	}
	spec = policy(t, render(t, writeFiles(t, all[3])), "etl-mesh").Spec.PolicySpec
	if got := strings.Join(sidecarNames(spec), " "); got != "fluent-bit istio-proxy" || spec.Image != "mirror.example/quick-exit:v1" {
		t.Errorf("the component's example has sidecars %s and image %s", got, spec.Image)
	}
	spec = policy(t, render(t, writeFiles(t, all[4])), "mesh").Spec.PolicySpec
	if got := strings.Join(sidecarNames(spec), " "); got != "istio-proxy vault-agent" {
		t.Errorf("the JSON patch leads to %s", got)
	}
	if containers := job(t, render(t, writeFiles(t, all[5])), "load").Spec.Template.Spec.Containers; len(containers) != 2 {
		t.Errorf("the Job has containers %v", containers)
	}
}

func TestGuideListsOverlaysAndPresets(t *testing.T) {
	content, err := os.ReadFile("../docs/kustomize.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, overlay := range append(installations(), namespacedOverlay) {
		if overlay != "overlays/local" && !strings.Contains(string(content), "`config/"+overlay+"`") {
			t.Errorf("the guide does not name config/%s", overlay)
		}
	}
	for _, preset := range slices.Concat(slices.Collect(maps.Keys(presets)), slices.Collect(maps.Keys(toolPresets))) {
		if !strings.Contains(string(content), preset) {
			t.Errorf("the guide does not name the preset %s", preset)
		}
	}
}

func TestDocumentedMetricsMatchRegistry(t *testing.T) {
	content, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, match := range metric.FindAllStringSubmatch(string(content), -1) {
		documented[match[1]] = strings.NewReplacer("`", "", " ", "").Replace(match[2])
	}
	for name, labels := range registeredMetrics(t) {
		if !strings.HasPrefix(name, "sidecar_termination_") {
			continue
		}
		if got, ok := documented[name]; !ok || got != strings.Join(labels, ",") {
			t.Errorf("docs/operations.md has metric %s with labels %q, want %q", name, got, strings.Join(labels, ","))
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/operations.md has unregistered metric %s", name)
	}
}
