// SPDX-License-Identifier: Apache-2.0

package chart

import (
	_ "embed"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// valuesSchema refuses values that the chart does not know, which are typing errors.
//
//go:embed values.schema.json
var valuesSchema string

// values returns the chart's values with a comment each.
func (s *settings) values() ([]byte, error) {
	enabled := func(on bool) map[string]any { return map[string]any{"enabled": on} }
	result := &strings.Builder{}
	result.WriteString(generated)
	for _, value := range []struct {
		comment, name string
		content       any
	}{
		{"One copy acts, the others are ready to take over.", "replicas", s.replicas},
		{"The operator's image. A digest takes the place of the tag.", "image", map[string]any{
			"repository": s.image.repository, "tag": s.image.tag, "digest": "", "pullPolicy": "IfNotPresent",
		}},
		{"Names of Secrets with credentials for the image.", "imagePullSecrets", []any{}},
		{"The image of mode Image where neither a policy nor a container names one. Empty: such pods are reported.",
			"quickExitImage", s.quickExitImage},
		{"Which modes there are, Enabled or Disabled. The operator has no right that only a disabled mode needs.\n" +
			"# podPhase can be LastResort as well: phases are written only where no image can be swapped.", "modes", map[string]any{
			"crr": "Enabled", "image": "Enabled", "podPhase": "Enabled",
		}},
		{"Enabled: quick-exit images are pulled ahead for policies with prePull, where OpenKruise is installed.", "prePull", "Enabled"},
		{"The ValidatingAdmissionPolicies that keep written phases, ask authors of policies for the rights of the modes that they\n" +
			"# can lead to, and hold the operator to what it does.", "admissionPolicies", enabled(true)},
		{"Further flags of the operator without their dashes, as in pod-phase-max-grace-period: 10m or env-convention: Disabled.", "flags", map[string]any{}},
		{"Resources of the operator. Without a limit of CPU, which would delay the end of Jobs when many end.", "resources", s.resources},
		{"Soft limit of memory: about nine tenths of resources.limits.memory.", "goMemoryLimit", s.memoryLimit},
		{"Where the operator's pods run.", "nodeSelector", map[string]any{}},
		{"", "tolerations", []any{}},
		{"", "affinity", s.affinity},
		{"", "topologySpreadConstraints", []any{}},
		{"", "priorityClassName", ""},
		{"Further annotations and labels of the operator's pods.", "podAnnotations", map[string]any{}},
		{"", "podLabels", map[string]any{}},
		{"Keeps one copy while nodes are drained. There is none with one replica.", "podDisruptionBudget", enabled(true)},
		{"The custom resource definitions. keep: they, and all policies, stay when the release is uninstalled.", "crds", map[string]any{
			"install": true, "keep": true,
		}},
		{"A Service and a ServiceMonitor for the Prometheus operator.", "serviceMonitor", enabled(false)},
		{"A PrometheusRule for the Prometheus operator.", "alerts", enabled(false)},
		{"A dashboard, in a ConfigMap that the sidecar of Grafana loads.", "dashboard", enabled(false)},
		{"Who may reach the operator, and whom it may reach.", "networkPolicy", enabled(false)},
	} {
		content, err := yaml.Marshal(map[string]any{value.name: value.content})
		if err != nil {
			return nil, fmt.Errorf("encode the value %s: %w", value.name, err)
		}
		if value.comment != "" {
			result.WriteString("\n# " + value.comment + "\n")
		}
		result.Write(content)
	}
	return []byte(result.String()), nil
}
