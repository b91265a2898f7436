// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"regexp"
	"strings"
	"testing"
)

var (
	block  = regexp.MustCompile("(?s)```yaml\n# (\\S+\\.yaml)\n(.*?)```")
	remote = regexp.MustCompile(`https://github\.com/sidecar-termination/operator//config/(\S+)\?ref=v0\.1\.0`)
)

// pages returns the files of each kustomization in docs/kustomize.md. Each starts with its kustomization.yaml.
func pages(t *testing.T) []map[string]string {
	t.Helper()
	content := string(readConfig(t, "../docs/kustomize.md"))
	var all []map[string]string
	for _, match := range block.FindAllStringSubmatch(content, -1) {
		name, text := match[1], remote.ReplaceAllString(match[2], "CONFIG/$1")
		if name == "kustomization.yaml" {
			all = append(all, map[string]string{})
		}
		all[len(all)-1][name] = text
	}
	if blocks := strings.Count(content, "```yaml"); len(block.FindAllString(content, -1)) != blocks {
		t.Errorf("some of the %d YAML blocks do not start with their file name", blocks)
	}
	return all
}

func TestGuideExamples(t *testing.T) {
	want := []fields{
		{"PrometheusRule/sidecar-termination-operator {.kind}": "PrometheusRule"},
		{"SidecarTerminationPolicy/fluent-bit {range .spec.sidecars[*]}{.name},{.drainSeconds},{.exitCodePolicy} {end}": "fluent-bit,30,Ignore uploader,,"},
		{"ClusterSidecarTerminationPolicy/istio-proxy {.spec.namespaceSelector.matchLabels}": `{"istio-injection":"enabled"}`},
		{"SidecarTerminationPolicy/etl-mesh {.spec.sidecars[*].name} {.spec.image}": "fluent-bit istio-proxy mirror.example/quick-exit:v1"},
	}
	all := pages(t)
	if len(all) < len(want) {
		t.Fatalf("found %d kustomizations", len(all))
	}
	for i, files := range all {
		rendered := render(t, writeFiles(t, files))
		if i < len(want) {
			requireFields(t, rendered, want[i])
		}
		if i == 0 && rendered.has("ClusterRole", "sidecar-termination-manager-image-role") {
			t.Error("the first example installs mode Image")
		}
	}
}

func TestGuidesListOverlaysAndPresets(t *testing.T) {
	kustomize, tools := string(readConfig(t, "../docs/kustomize.md")), string(readConfig(t, "../docs/guides/tools.md"))
	for _, overlay := range append(installations(), namespacedOverlay) {
		if overlay != "overlays/local" && !strings.Contains(kustomize, "`config/"+overlay+"`") {
			t.Errorf("docs/kustomize.md does not name config/%s", overlay)
		}
	}
	for preset := range presets {
		if !strings.Contains(kustomize, preset) {
			t.Errorf("docs/kustomize.md does not name the preset %s", preset)
		}
	}
	for preset := range toolPresets {
		if !strings.Contains(tools, "`"+preset+"`") {
			t.Errorf("docs/guides/tools.md does not name the preset %s", preset)
		}
	}
}
