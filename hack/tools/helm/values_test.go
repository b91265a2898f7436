// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chartutil"
)

const (
	// podTemplate and firstContainer are paths in the Deployment.
	podTemplate    = deployment + " spec.template."
	firstContainer = podTemplate + "spec.containers.0."

	created = "created"
	deleted = "deleted"
)

// effect is what a value changes in the rendered objects.
type effect struct {
	value any
	// with are other values that the effect needs.
	with values
	// want are the changed fields by object and path; nil for a removed one. An object is created or deleted.
	want map[string]any
	// everywhere are fields that every object gets.
	everywhere map[string]any
}

// effects has an effect for each value of the chart.
func effects() map[string]effect {
	enabled := func(name string) values { return values{name: values{"enabled": true}} }
	mode := func(flag, name string) effect {
		return effect{value: "Disabled", want: both(map[string]any{firstContainer + "args.3": flag + "=Disabled"},
			all(deleted, "ClusterRole sidecar-termination-manager-"+name+"-role", "ClusterRoleBinding sidecar-termination-manager-"+name+"-rolebinding"),
			all(deleted, admission("mode-"+name)...))}
	}
	peer := values{"namespaceSelector": values{"matchLabels": values{"team": "observability"}}}
	rule := values{"to": []any{peer}, "ports": []any{values{"port": 4317}}}
	return map[string]effect{
		"commonLabels": {
			value:      values{"team": "batch", "app.kubernetes.io/name": "other"},
			want:       map[string]any{podTemplate + "metadata.labels.team": "batch"},
			everywhere: map[string]any{"metadata.labels.team": "batch"},
		},
		"commonAnnotations": {value: values{"team": "batch"}, everywhere: map[string]any{"metadata.annotations.team": "batch"}},
		"imageRegistry": {value: "mirror.example:5000/ghcr/", want: map[string]any{
			firstContainer + "image":       "mirror.example:5000/ghcr/sidecar-termination/sidecar-termination-operator:v0.1.0",
			firstContainer + "env.0.value": "mirror.example:5000/ghcr/sidecar-termination/quick-exit:v0.1.0",
		}},
		"image.repository": {value: "mirror.example:5000/operator", want: map[string]any{firstContainer + "image": "mirror.example:5000/operator:v0.1.0"}},
		"image.tag":        {value: "v9", want: map[string]any{firstContainer + "image": "ghcr.io/sidecar-termination/sidecar-termination-operator:v9"}},
		"image.digest": {value: "sha256:" + strings.Repeat("0", 64), want: map[string]any{
			firstContainer + "image": "ghcr.io/sidecar-termination/sidecar-termination-operator@sha256:" + strings.Repeat("0", 64),
		}},
		"image.pullPolicy": {value: "Always", want: map[string]any{firstContainer + "imagePullPolicy": "Always"}},
		"imagePullSecrets": {value: []any{values{"name": "mirror"}}, want: map[string]any{podTemplate + "spec.imagePullSecrets.0.name": "mirror"}},
		"quickExitImage":   {value: "", want: map[string]any{firstContainer + "env.0.value": ""}},

		"modes.crr":   mode("--crr", "crr"),
		"modes.image": mode("--image-swap", "image"),
		"modes.podPhase": {value: "Disabled", want: both(mode("--pod-phase", "pod-phase").want,
			all(deleted, admission("phase-guard")...))},
		"prePull": mode("--pre-pull", "pre-pull"),
		"admissionPolicies.enabled": {value: false, want: both(map[string]any{firstContainer + "args.3": "--stabilization-window=1500ms"},
			all(deleted, admission("mode-crr", "mode-image", "mode-pod-phase", "mode-pre-pull",
				"phase-guard", "operator-limits", "operator-requests")...))},

		"watchNamespaces": {value: []any{"batch"}, want: both(
			map[string]any{
				firstContainer + "args.3": "--stabilization-window=1500ms", firstContainer + "args.4": "--watch-namespaces=batch",
				firstContainer + "args.5": "--metrics-authentication=Disabled",
			},
			all(deleted, admission("mode-crr", "mode-image", "mode-pod-phase", "mode-pre-pull",
				"phase-guard", "operator-limits", "operator-requests")...),
			all(deleted, clusterRoles()...),
			all(created, namespacedRoles("manager-", "manager-image-", "manager-pod-phase-")...),
		)},
		"flags": {
			value: values{"default-exit-codes": "Respect", "env-convention": "Disabled", "leader-elect": false, "zap-log-level": 2},
			want: map[string]any{
				firstContainer + "args.3": "--default-exit-codes=Respect",
				firstContainer + "args.4": "--env-convention=Disabled",
				firstContainer + "args.5": "--leader-elect=false",
				firstContainer + "args.6": "--zap-log-level=2",
			},
		},
		"env": {value: []any{values{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}}, want: map[string]any{
			firstContainer + "env.2.name": "HTTPS_PROXY", firstContainer + "env.2.value": "http://proxy.example:3128",
		}},
		"volumes": {value: []any{values{"name": "metrics", "secret": values{"secretName": "metrics"}}}, want: map[string]any{
			podTemplate + "spec.volumes.0.name": "metrics", podTemplate + "spec.volumes.0.secret.secretName": "metrics",
		}},
		"volumeMounts": {value: []any{values{"name": "metrics", "mountPath": "/certificates"}}, want: map[string]any{
			firstContainer + "volumeMounts.0.name": "metrics", firstContainer + "volumeMounts.0.mountPath": "/certificates",
		}},

		"replicas":                    {value: 3, want: map[string]any{deployment + " spec.replicas": 3.0}},
		"podDisruptionBudget.enabled": {value: false, want: all(deleted, "PodDisruptionBudget sidecar-termination-controller-manager")},
		"podDisruptionBudget.minAvailable": {value: "50%", want: map[string]any{
			"PodDisruptionBudget sidecar-termination-controller-manager spec.minAvailable": "50%",
		}},
		"resources":             {value: values{"limits": values{"memory": "1Gi"}}, want: map[string]any{firstContainer + "resources.limits.memory": "1Gi"}},
		"goMemoryLimit":         {value: "900MiB", want: map[string]any{firstContainer + "env.1.value": "900MiB"}},
		"deploymentAnnotations": {value: values{"reload": "true"}, want: map[string]any{deployment + " metadata.annotations.reload": "true"}},
		"podAnnotations":        {value: values{"scrape": "true"}, want: map[string]any{podTemplate + "metadata.annotations.scrape": "true"}},
		"podLabels": {value: values{"team": "batch", "app.kubernetes.io/component": "other"}, want: map[string]any{
			podTemplate + "metadata.labels.team": "batch",
		}},
		"podSecurityContext": {value: values{"runAsUser": nil, "runAsGroup": nil}, want: map[string]any{
			podTemplate + "spec.securityContext.runAsUser": nil, podTemplate + "spec.securityContext.runAsGroup": nil,
		}},
		"containerSecurityContext": {value: values{"readOnlyRootFilesystem": nil}, want: map[string]any{
			firstContainer + "securityContext.readOnlyRootFilesystem": nil,
		}},
		"nodeSelector": {value: values{"os": "linux"}, want: map[string]any{podTemplate + "spec.nodeSelector.os": "linux"}},
		"tolerations":  {value: []any{values{"key": "infra"}}, want: map[string]any{podTemplate + "spec.tolerations.0.key": "infra"}},
		"affinity": {value: values{"nodeAffinity": values{"example": "x"}}, want: map[string]any{
			podTemplate + "spec.affinity.nodeAffinity.example": "x",
		}},
		"topologySpreadConstraints": {value: []any{values{"topologyKey": "zone"}}, want: map[string]any{
			podTemplate + "spec.topologySpreadConstraints.0.topologyKey": "zone",
		}},
		"priorityClassName": {value: "system-cluster-critical", want: map[string]any{podTemplate + "spec.priorityClassName": "system-cluster-critical"}},

		"crds.install": {value: false, want: all(deleted, definitions...)},
		"crds.keep": {value: false, want: map[string]any{
			definitions[0] + " metadata.annotations.helm.sh/resource-policy": nil,
			definitions[1] + " metadata.annotations.helm.sh/resource-policy": nil,
		}},

		"serviceMonitor.enabled": {value: true, want: all(created, serviceMonitor, "Service sidecar-termination-controller-manager-metrics")},
		"serviceMonitor.namespace": {value: "monitoring", with: enabled("serviceMonitor"), want: map[string]any{
			serviceMonitor + " metadata.namespace": "monitoring", serviceMonitor + " spec.namespaceSelector.matchNames.0": namespace,
		}},
		"serviceMonitor.labels": {value: values{"release": "prometheus"}, with: enabled("serviceMonitor"), want: map[string]any{
			serviceMonitor + " metadata.labels.release": "prometheus",
		}},
		"serviceMonitor.interval":      {value: "1m", with: enabled("serviceMonitor"), want: map[string]any{endpoint + "interval": "1m"}},
		"serviceMonitor.scrapeTimeout": {value: "5s", with: enabled("serviceMonitor"), want: map[string]any{endpoint + "scrapeTimeout": "5s"}},
		"serviceMonitor.relabelings": {value: []any{values{"action": "labeldrop"}}, with: enabled("serviceMonitor"), want: map[string]any{
			endpoint + "relabelings.0.action": "labeldrop",
		}},
		"serviceMonitor.metricRelabelings": {value: []any{values{"action": "keep"}}, with: enabled("serviceMonitor"), want: map[string]any{
			endpoint + "metricRelabelings.0.action": "keep",
		}},
		"serviceMonitor.tlsConfig": {value: values{"insecureSkipVerify": nil, "serverName": "operator"}, with: enabled("serviceMonitor"), want: map[string]any{
			endpoint + "tlsConfig.insecureSkipVerify": nil, endpoint + "tlsConfig.serverName": "operator",
		}},
		"prometheusRule.enabled":   {value: true, want: all(created, prometheusRule)},
		"prometheusRule.namespace": {value: "monitoring", with: enabled("prometheusRule"), want: map[string]any{prometheusRule + " metadata.namespace": "monitoring"}},
		"prometheusRule.labels": {value: values{"release": "prometheus"}, with: enabled("prometheusRule"), want: map[string]any{
			prometheusRule + " metadata.labels.release": "prometheus",
		}},
		"dashboard.enabled":   {value: true, want: all(created, dashboard)},
		"dashboard.namespace": {value: "monitoring", with: enabled("dashboard"), want: map[string]any{dashboard + " metadata.namespace": "monitoring"}},
		"dashboard.labels":    {value: values{"grafana_dashboard": "yes"}, with: enabled("dashboard"), want: map[string]any{dashboard + " metadata.labels.grafana_dashboard": "yes"}},
		"dashboard.annotations": {value: values{"grafana_folder": "Jobs"}, with: enabled("dashboard"), want: map[string]any{
			dashboard + " metadata.annotations.grafana_folder": "Jobs",
		}},
		"networkPolicy.enabled": {value: true, want: all(created, networkPolicy)},
		"networkPolicy.metricsFrom": {value: []any{peer}, with: enabled("networkPolicy"), want: map[string]any{
			networkPolicy + " spec.ingress.0.from.0.namespaceSelector.matchLabels.metrics": nil,
			networkPolicy + " spec.ingress.0.from.0.namespaceSelector.matchLabels.team":    "observability",
		}},
		"networkPolicy.apiServer": {value: []any{values{"ports": []any{values{"port": 8443, "protocol": "TCP"}}}}, with: enabled("networkPolicy"), want: map[string]any{
			networkPolicy + " spec.egress.0.ports.0.port":     8443.0,
			networkPolicy + " spec.egress.0.ports.1.port":     nil,
			networkPolicy + " spec.egress.0.ports.1.protocol": nil,
		}},
		"networkPolicy.egress": {value: []any{rule}, with: enabled("networkPolicy"), want: map[string]any{
			networkPolicy + " spec.egress.1.to.0.namespaceSelector.matchLabels.team": "observability",
			networkPolicy + " spec.egress.1.ports.0.port":                            4317.0,
		}},
	}
}

const (
	serviceMonitor = "ServiceMonitor sidecar-termination-controller-manager"
	endpoint       = serviceMonitor + " spec.endpoints.0."
	prometheusRule = "PrometheusRule sidecar-termination-operator"
	dashboard      = "ConfigMap sidecar-termination-dashboard"
	networkPolicy  = "NetworkPolicy sidecar-termination-controller-manager"
)

var definitions = []string{
	"CustomResourceDefinition clustersidecarterminationpolicies.sidecartermination.dev",
	"CustomResourceDefinition sidecarterminationpolicies.sidecartermination.dev",
}

// admission returns admission policies and their bindings.
func admission(names ...string) []string {
	var keys []string
	for _, name := range names {
		keys = append(keys, "ValidatingAdmissionPolicy sidecar-termination-"+name, "ValidatingAdmissionPolicyBinding sidecar-termination-"+name)
	}
	return keys
}

// clusterRoles are the ClusterRoles of the operator with their bindings, and those for users.
func clusterRoles() []string {
	var keys []string
	for _, name := range []string{"manager-", "manager-crr-", "manager-image-", "manager-pod-phase-", "manager-pre-pull-"} {
		keys = append(keys, "ClusterRole sidecar-termination-"+name+"role", "ClusterRoleBinding sidecar-termination-"+name+"rolebinding")
	}
	for _, name := range []string{"policy-viewer", "policy-editor", "clusterpolicy-viewer", "mode-user", "pod-finisher", "metrics-reader"} {
		keys = append(keys, "ClusterRole sidecar-termination-"+name)
	}
	return keys
}

// namespacedRoles returns Roles and their bindings.
func namespacedRoles(names ...string) []string {
	var keys []string
	for _, name := range names {
		keys = append(keys, "Role sidecar-termination-"+name+"role", "RoleBinding sidecar-termination-"+name+"rolebinding")
	}
	return keys
}

func all(change string, keys ...string) map[string]any {
	want := map[string]any{}
	for _, key := range keys {
		want[key] = change
	}
	return want
}

func both(changes ...map[string]any) map[string]any {
	want := map[string]any{}
	for _, change := range changes {
		maps.Copy(want, change)
	}
	return want
}

// given returns the values with which the effect is seen.
func (e effect) given(path string) values {
	var given any = e.value
	keys := strings.Split(path, ".")
	for _, key := range slices.Backward(keys) {
		given = values{key: given}
	}
	return chartutil.CoalesceTables(given.(values), copied(e.with))
}

// copied returns a copy, because Helm changes the values that it merges.
func copied(from values) values {
	to := values{}
	for key, value := range from {
		if inner, ok := value.(values); ok {
			value = copied(inner)
		}
		to[key] = value
	}
	return to
}

func TestEachValueHasItsEffect(t *testing.T) {
	for path, tc := range effects() {
		t.Run(path, func(t *testing.T) {
			before := render(t, copied(tc.with))
			want := both(tc.want)
			for key := range before {
				for field, value := range tc.everywhere {
					want[key+" "+field] = value
				}
			}
			if difference := cmp.Diff(want, changes(before, render(t, tc.given(path)))); difference != "" {
				t.Errorf("changes (-want +got):\n%s", difference)
			}
		})
	}
}

// changes returns the changed fields.
func changes(before, after objects) map[string]any {
	changed := map[string]any{}
	for key := range before {
		if after[key] == nil {
			changed[key] = deleted
		}
	}
	for key, object := range after {
		if before[key] == nil {
			changed[key] = created
			continue
		}
		old, current := map[string]any{}, map[string]any{}
		flatten(key+" ", before[key].Object, old)
		flatten(key+" ", object.Object, current)
		for path := range old {
			if _, kept := current[path]; !kept {
				changed[path] = nil
			}
		}
		for path, value := range current {
			if previous, existed := old[path]; !existed || previous != value {
				changed[path] = value
			}
		}
	}
	return changed
}

// flatten adds the scalar fields by their paths.
func flatten(path string, value any, into map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			flatten(path+key+".", inner, into)
		}
	case []any:
		for index, inner := range value {
			flatten(fmt.Sprintf("%s%d.", path, index), inner, into)
		}
	default:
		into[strings.TrimSuffix(path, ".")] = value
	}
}

// Each value has a comment in values.yaml, a property in the schema, and a test of its effect.
func TestEachValueIsKnown(t *testing.T) {
	// Their effect is on names: see TestNames.
	tested := slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(effects())), "fullnameOverride", "nameOverride")))
	var schema map[string]any
	loaded := load(t)
	if err := json.Unmarshal(loaded.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	var properties []string
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		inner, _ := schema["properties"].(map[string]any)
		if inner != nil && schema["additionalProperties"] != false {
			t.Errorf("the schema allows unknown values below %q", path)
		}
		if inner == nil || slices.Contains(tested, path) {
			properties = append(properties, path)
			return
		}
		for key, value := range inner {
			walk(strings.TrimPrefix(path+"."+key, "."), value.(map[string]any))
		}
	}
	walk("", schema)
	// Helm adds this one for subcharts.
	properties = slices.DeleteFunc(properties, func(path string) bool { return path == "global" })
	slices.Sort(properties)
	if difference := cmp.Diff(tested, properties); difference != "" {
		t.Errorf("values (-tested +schema):\n%s", difference)
	}

	if described := describedValues(t); !slices.Equal(described, tested) {
		t.Errorf("values (-tested +values.yaml):\n%s", cmp.Diff(tested, described))
	}
}

// describedValues returns the paths of the keys in values.yaml that a comment describes, sorted.
func describedValues(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, "config", "chart", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var described, path []string
	isComment := false
	for line := range strings.Lines(string(content)) {
		text := strings.TrimLeft(line, " ")
		key, _, isKey := strings.Cut(text, ":")
		if indent := (len(line) - len(text)) / 2; isKey && !strings.HasPrefix(text, "#") && indent <= len(path) {
			path = append(path[:indent:indent], key)
			if isComment {
				described = append(described, strings.Join(path, "."))
			}
		}
		isComment = strings.HasPrefix(text, "#")
	}
	slices.Sort(described)
	return described
}

func TestImageRegistry(t *testing.T) {
	for image, want := range map[string]string{
		"":                                   "",
		"quick-exit:v1":                      "mirror.example/quick-exit:v1",
		"team/quick-exit:v1":                 "mirror.example/team/quick-exit:v1",
		"localhost/quick-exit":               "mirror.example/quick-exit",
		"registry.example:5000/a/b@sha256:0": "mirror.example/a/b@sha256:0",
	} {
		env := container(t, render(t, values{"imageRegistry": "mirror.example", "quickExitImage": image}))["env"]
		if got := env.([]any)[0].(map[string]any)["value"]; got != want {
			t.Errorf("%q becomes %q, want %q", image, got, want)
		}
	}
}

// everything turns everything on.
func everything() values {
	// Helm changes the values that it merges, so none is shared.
	on := func() values { return values{"enabled": true} }
	return values{
		"commonLabels":      values{"team": "batch"},
		"commonAnnotations": values{"team": "batch"},
		"imageRegistry":     "mirror.example",
		"serviceMonitor":    on(),
		"prometheusRule":    on(),
		"dashboard":         on(),
		"networkPolicy":     on(),
	}
}
