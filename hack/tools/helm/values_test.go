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
	"go.yaml.in/yaml/v3"
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
	path  string
	value any
	// at is the field that shows the value, or is empty.
	at string
	// changes are the other changed fields by object and path; nil for a removed one. An object is created or deleted.
	changes map[string]any
	// everywhere is the field of every object that shows the value.
	everywhere string
	// with are other values that the effect needs.
	with values
}

// effects has an effect for each value of the chart.
func effects() []effect {
	const nextArg = firstContainer + "args.2"
	mode := func(flag, name string) map[string]any {
		return both(map[string]any{nextArg: flag + "=Disabled"}, all(deleted, admission("mode-"+name)...),
			all(deleted, "ClusterRole sidecar-termination-manager-"+name+"-role", "ClusterRoleBinding sidecar-termination-manager-"+name+"-rolebinding"))
	}
	protections := []string{"mode-crr", "mode-pod-phase", "mode-pre-pull", "operator-limits", "operator-requests"}
	digest := "sha256:" + strings.Repeat("0", 64)
	mirrored := values{"imageRegistry": "mirror.example"}
	quickExit := func(image string) map[string]any { return map[string]any{firstContainer + "env.0.value": image} }
	peer := []any{values{"namespaceSelector": values{"matchLabels": values{"team": "observability"}}}}
	return []effect{
		{path: "commonLabels", value: values{"team": "batch", "app.kubernetes.io/name": "other"}, changes: map[string]any{podTemplate + "metadata.labels.team": "batch"}, everywhere: "metadata.labels.team"},
		{path: "commonAnnotations", value: values{"team": "batch"}, everywhere: "metadata.annotations.team"},
		{path: "imageRegistry", value: "mirror.example:5000/ghcr/", changes: map[string]any{
			firstContainer + "image":       "mirror.example:5000/ghcr/sidecar-termination/sidecar-termination-operator:v0.1.0",
			firstContainer + "env.0.value": "mirror.example:5000/ghcr/sidecar-termination/quick-exit:v0.1.0",
		}},
		{path: "image.repository", value: "mirror.example:5000/operator", changes: map[string]any{firstContainer + "image": "mirror.example:5000/operator:v0.1.0"}},
		{path: "image.tag", value: "v9", changes: map[string]any{firstContainer + "image": "ghcr.io/sidecar-termination/sidecar-termination-operator:v9"}},
		{path: "image.digest", value: digest, changes: map[string]any{firstContainer + "image": "ghcr.io/sidecar-termination/sidecar-termination-operator@" + digest}},
		{path: "image.pullPolicy", value: "Always", at: firstContainer + "imagePullPolicy"},
		{path: "imagePullSecrets", value: []any{values{"name": "mirror"}}, at: podTemplate + "spec.imagePullSecrets"},
		{path: "quickExitImage", value: "", at: firstContainer + "env.0.value"},
		{path: "quickExitImage", value: "quick-exit:v1", with: mirrored, changes: quickExit("mirror.example/quick-exit:v1")},
		{path: "quickExitImage", value: "team/quick-exit:v1", with: mirrored, changes: quickExit("mirror.example/team/quick-exit:v1")},
		{path: "quickExitImage", value: "localhost/quick-exit", with: mirrored, changes: quickExit("mirror.example/quick-exit")},
		{path: "quickExitImage", value: "registry.example:5000/a/b@" + digest, with: mirrored, changes: quickExit("mirror.example/a/b@" + digest)},

		{path: "modes.crr", value: "Disabled", changes: mode("--crr", "crr")},
		{path: "modes.image", value: "Disabled", changes: mode("--image-swap", "image")},
		{path: "modes.podPhase", value: "Disabled", changes: both(
			map[string]any{nextArg: "--pod-phase=Disabled"}, all(deleted, admission("mode-pod-phase")...))},
		{path: "modes.podPhase", value: "LastResort", changes: map[string]any{nextArg: "--pod-phase=LastResort"}},
		{path: "prePull", value: "Disabled", changes: mode("--pre-pull", "pre-pull")},
		{path: "tenants", value: true, changes: map[string]any{
			"ClusterRole sidecar-termination-mode-user metadata.labels.rbac.authorization.k8s.io/aggregate-to-edit":  "true",
			"ClusterRole sidecar-termination-mode-user metadata.labels.rbac.authorization.k8s.io/aggregate-to-admin": "true",
		}},
		{path: "includeInjected", value: true, changes: all(created,
			"ClusterRole sidecar-termination-manager-jobs-role", "ClusterRoleBinding sidecar-termination-manager-jobs-rolebinding")},
		{path: "admissionPolicies.enabled", value: false, changes: all(deleted, admission(append(protections, "mode-image")...)...)},
		{path: "watchNamespaces", value: []any{"batch", "etl", "batch"}, with: values{"serviceMonitor": values{"enabled": true}, "modes": values{"image": "Disabled"}}, changes: both(
			map[string]any{
				firstContainer + "args.3": "--watch-namespaces=batch,etl,batch", firstContainer + "args.4": "--metrics-authentication=Disabled",
				endpoint + "scheme": "http", endpoint + "bearerTokenFile": nil, endpoint + "tlsConfig.insecureSkipVerify": nil,
			},
			all(deleted, admission(protections...)...), all(deleted, outcome...), all(deleted, clusterRoles()...), all(created, namespacedRoles("", " in etl")...),
		)},
		{path: "flags", value: values{"default-exit-code-policy": "Respect", "leader-elect": false, "zap-log-level": 2}, changes: map[string]any{
			nextArg: "--default-exit-code-policy=Respect", firstContainer + "args.3": "--leader-elect=false", firstContainer + "args.4": "--zap-log-level=2",
		}},
		{path: "env", value: []any{values{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}}, changes: map[string]any{
			firstContainer + "env.2.name": "HTTPS_PROXY", firstContainer + "env.2.value": "http://proxy.example:3128",
		}},
		{path: "volumes", value: []any{values{"name": "metrics", "secret": values{"secretName": "metrics"}}}, at: podTemplate + "spec.volumes"},
		{path: "volumeMounts", value: []any{values{"name": "metrics", "mountPath": "/certificates"}}, at: firstContainer + "volumeMounts"},

		{path: "replicas", value: 3, at: deployment + " spec.replicas"},
		{path: "replicas", value: 1, at: deployment + " spec.replicas", changes: all(deleted, disruptionBudget)},
		{path: "podDisruptionBudget.enabled", value: false, changes: all(deleted, disruptionBudget)},
		{path: "podDisruptionBudget.minAvailable", value: "50%", at: disruptionBudget + " spec.minAvailable"},
		{path: "resources", value: values{"limits": values{"memory": "1Gi"}}, at: firstContainer + "resources"},
		{path: "resources", value: values{"limits": values{"memory": nil}}, at: firstContainer + "resources"},
		{path: "goMemoryLimit", value: "900MiB", at: firstContainer + "env.1.value"},
		{path: "deploymentAnnotations", value: values{"reload": "true"}, at: deployment + " metadata.annotations"},
		{path: "podAnnotations", value: values{"scrape": "true"}, at: podTemplate + "metadata.annotations"},
		{path: "podLabels", value: values{"team": "batch", "app.kubernetes.io/component": "other"}, changes: map[string]any{podTemplate + "metadata.labels.team": "batch"}},
		{path: "podSecurityContext", value: values{"runAsUser": nil, "runAsGroup": nil}, at: podTemplate + "spec.securityContext"},
		{path: "containerSecurityContext", value: values{"readOnlyRootFilesystem": nil}, at: firstContainer + "securityContext"},
		{path: "nodeSelector", value: values{"os": "linux"}, at: podTemplate + "spec.nodeSelector"},
		{path: "tolerations", value: []any{values{"key": "infra"}}, at: podTemplate + "spec.tolerations"},
		{path: "affinity", value: values{"nodeAffinity": values{"example": "x"}}, at: podTemplate + "spec.affinity"},
		{path: "topologySpreadConstraints", value: []any{values{"topologyKey": "zone"}}, at: podTemplate + "spec.topologySpreadConstraints"},
		{path: "priorityClassName", value: "system-cluster-critical", at: podTemplate + "spec.priorityClassName"},
		{path: "strategy", value: values{"rollingUpdate": values{"maxSurge": 0}}, at: deployment + " spec.strategy"},
		{path: "revisionHistoryLimit", value: 0, at: deployment + " spec.revisionHistoryLimit"},
		{path: "livenessProbe", value: values{"periodSeconds": 60}, at: firstContainer + "livenessProbe"},
		{path: "readinessProbe", value: values{"failureThreshold": 5}, at: firstContainer + "readinessProbe"},
		{path: "serviceAccount.create", value: false, changes: all(deleted, serviceAccount)},
		{path: "serviceAccount.name", value: "batch", changes: renamedServiceAccount("batch")},
		{path: "serviceAccount.annotations", value: values{"team": "batch"}, at: serviceAccount + " metadata.annotations"},
		{path: "extraObjects", value: []any{values{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": values{"name": "{{ .Release.Name }}-extra"},
		}}, changes: all(created, "ConfigMap sidecar-termination-operator-extra")},

		{path: "crds.install", value: false, changes: all(deleted, definitions...)},
		{path: "crds.keep", value: false, changes: map[string]any{
			definitions[0] + " metadata.annotations.helm.sh/resource-policy": nil,
			definitions[1] + " metadata.annotations.helm.sh/resource-policy": nil,
		}},

		{path: "serviceMonitor.enabled", value: true, changes: all(created, serviceMonitor, "Service sidecar-termination-controller-manager-metrics")},
		{path: "serviceMonitor.namespace", value: "monitoring", at: serviceMonitor + " metadata.namespace", changes: map[string]any{
			serviceMonitor + " spec.namespaceSelector.matchNames.0": namespace,
		}},
		{path: "serviceMonitor.labels", value: values{"release": "prometheus"}, at: serviceMonitor + " metadata.labels"},
		{path: "serviceMonitor.interval", value: "1m", at: endpoint + "interval"},
		{path: "serviceMonitor.scrapeTimeout", value: "5s", at: endpoint + "scrapeTimeout"},
		{path: "serviceMonitor.relabelings", value: []any{values{"action": "labeldrop"}}, at: endpoint + "relabelings"},
		{path: "serviceMonitor.metricRelabelings", value: []any{values{"action": "keep"}}, at: endpoint + "metricRelabelings"},
		{path: "serviceMonitor.tlsConfig", value: values{"insecureSkipVerify": nil, "serverName": "operator"}, at: endpoint + "tlsConfig"},
		{path: "prometheusRule.enabled", value: true, changes: all(created, prometheusRule)},
		{path: "prometheusRule.namespace", value: "monitoring", at: prometheusRule + " metadata.namespace"},
		{path: "prometheusRule.labels", value: values{"release": "prometheus"}, at: prometheusRule + " metadata.labels"},
		{path: "dashboard.enabled", value: true, changes: all(created, dashboard)},
		{path: "dashboard.namespace", value: "monitoring", at: dashboard + " metadata.namespace"},
		{path: "dashboard.labels", value: values{"grafana_dashboard": "yes"}, at: dashboard + " metadata.labels"},
		{path: "dashboard.annotations", value: values{"grafana_folder": "Jobs"}, at: dashboard + " metadata.annotations"},
		{path: "networkPolicy.enabled", value: true, changes: all(created, networkPolicy)},
		{path: "networkPolicy.metricsFrom", value: peer, at: networkPolicy + " spec.ingress.0.from", changes: map[string]any{
			networkPolicy + " spec.ingress.0.from.0.namespaceSelector.matchLabels.metrics": nil,
		}},
		{path: "networkPolicy.apiServer", value: []any{values{"ports": []any{values{"port": 8443}}}}, at: networkPolicy + " spec.egress", changes: map[string]any{
			networkPolicy + " spec.egress.0.ports.0.protocol": nil, networkPolicy + " spec.egress.0.ports.1.protocol": nil, networkPolicy + " spec.egress.0.ports.1.port": nil,
		}},
		{path: "networkPolicy.egress", value: []any{values{"to": peer}}, changes: map[string]any{
			networkPolicy + " spec.egress.1.to.0.namespaceSelector.matchLabels.team": "observability",
		}},
	}
}

const (
	serviceMonitor = "ServiceMonitor sidecar-termination-controller-manager"
	endpoint       = serviceMonitor + " spec.endpoints.0."
	prometheusRule = "PrometheusRule sidecar-termination-operator"
	dashboard      = "ConfigMap sidecar-termination-dashboard"
	networkPolicy  = "NetworkPolicy sidecar-termination-controller-manager"

	disruptionBudget = "PodDisruptionBudget sidecar-termination-controller-manager"
	serviceAccount   = "ServiceAccount sidecar-termination-controller-manager"
)

var definitions = []string{
	"CustomResourceDefinition clustersidecarterminationpolicies.sidecartermination.dev",
	"CustomResourceDefinition sidecarterminationpolicies.sidecartermination.dev",
}

// outcome are the admission policies that decide outcomes and protect the marks, and their bindings.
var outcome = append(admission("marks"), "MutatingAdmissionPolicy sidecar-termination-outcome", "MutatingAdmissionPolicyBinding sidecar-termination-outcome")

// admission returns validating admission policies and their bindings.
func admission(names ...string) []string {
	var keys []string
	for _, name := range names {
		keys = append(keys, "ValidatingAdmissionPolicy sidecar-termination-"+name, "ValidatingAdmissionPolicyBinding sidecar-termination-"+name)
	}
	return keys
}

// clusterRoles are the ClusterRoles with their bindings, without mode Image.
func clusterRoles() []string {
	var keys []string
	for _, name := range []string{"manager-", "manager-crr-", "manager-outcome-", "manager-pre-pull-"} {
		keys = append(keys, "ClusterRole sidecar-termination-"+name+"role", "ClusterRoleBinding sidecar-termination-"+name+"rolebinding")
	}
	for _, name := range []string{"policy-viewer", "policy-editor", "clusterpolicy-viewer", "mode-user", "mode-pre-pull-user", "pod-finisher", "metrics-reader"} {
		keys = append(keys, "ClusterRole sidecar-termination-"+name)
	}
	return keys
}

// namespacedRoles returns the Roles with their bindings in namespaces, without mode Image.
func namespacedRoles(namespaces ...string) []string {
	var keys []string
	for _, name := range []string{"manager-", "manager-outcome-"} {
		for _, namespace := range namespaces {
			keys = append(keys, "Role sidecar-termination-"+name+"role"+namespace, "RoleBinding sidecar-termination-"+name+"rolebinding"+namespace)
		}
	}
	return keys
}

// renamedServiceAccount are the changes by another name of the service account, in all that refers to it.
func renamedServiceAccount(name string) map[string]any {
	changes := map[string]any{
		serviceAccount: deleted, "ServiceAccount " + name: created,
		podTemplate + "spec.serviceAccountName":                                       name,
		"RoleBinding sidecar-termination-leader-election-rolebinding subjects.0.name": name,
	}
	for _, policy := range []string{"operator-limits", "operator-requests"} {
		changes["ValidatingAdmissionPolicy sidecar-termination-"+policy+" spec.matchConditions.0.expression"] =
			"request.userInfo.username.matches('^system:serviceaccount:[^:]+:[^:]*" + name + "[^:]*$')"
	}
	for _, role := range []string{"manager-", "manager-crr-", "manager-image-", "manager-outcome-", "manager-pre-pull-"} {
		changes["ClusterRoleBinding sidecar-termination-"+role+"rolebinding subjects.0.name"] = name
	}
	return changes
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

func TestEachValueHasItsEffect(t *testing.T) {
	for _, tc := range effects() {
		t.Run(fmt.Sprintf("%s %v", tc.path, tc.value), func(t *testing.T) {
			parent, field, _ := strings.Cut(tc.path, ".")
			with := copied(tc.with)
			if field != "enabled" && slices.Contains([]string{"serviceMonitor", "prometheusRule", "dashboard", "networkPolicy"}, parent) {
				with[parent] = values{"enabled": true}
			}
			given := tc.value
			for _, key := range slices.Backward(strings.Split(tc.path, ".")) {
				given = values{key: given}
			}
			before := render(t, with)
			after := render(t, chartutil.CoalesceTables(given.(values), with))
			want := both(tc.changes)
			if tc.at != "" {
				flatten(tc.at+".", tc.value, want)
			}
			for key := range before {
				if tc.everywhere != "" {
					want[key+" "+tc.everywhere] = "batch"
				}
			}
			if difference := cmp.Diff(want, changes(before, after)); difference != "" {
				t.Errorf("changes (-want +got):\n%s", difference)
			}
		})
	}
}

// changes returns the changed fields.
func changes(before, after objects) map[string]any {
	changed, old, current := map[string]any{}, map[string]any{}, map[string]any{}
	for key, object := range before {
		if after[key] == nil {
			changed[key] = deleted
			continue
		}
		flatten(key+" ", object.Object, old)
		flatten(key+" ", after[key].Object, current)
	}
	for key := range after {
		if before[key] == nil {
			changed[key] = created
		}
	}
	for path := range old {
		if current[path] == nil {
			changed[path] = nil
		}
	}
	for path, value := range current {
		if old[path] != value {
			changed[path] = value
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
	case int:
		into[strings.TrimSuffix(path, ".")] = float64(value)
	default:
		into[strings.TrimSuffix(path, ".")] = value
	}
}

// Each value has a comment in values.yaml, a property in the schema, and a test of its effect.
func TestEachValueIsKnown(t *testing.T) {
	// The effect of these two is on names: see TestNames.
	tested := []string{"fullnameOverride", "nameOverride"}
	for _, tc := range effects() {
		tested = append(tested, tc.path)
	}
	slices.Sort(tested)
	tested = slices.Compact(tested)
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

	content, err := os.ReadFile(filepath.Join(repository, "config", "chart", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(tested, slices.Sorted(slices.Values(described("", document.Content[0])))); difference != "" {
		t.Errorf("values (-tested +values.yaml):\n%s", difference)
	}
}

// described returns the paths of the keys that a comment describes.
func described(path string, values *yaml.Node) []string {
	var found []string
	if values.Kind != yaml.MappingNode {
		return nil
	}
	for pair := range slices.Chunk(values.Content, 2) {
		name := strings.TrimPrefix(path+"."+pair[0].Value, ".")
		if pair[0].HeadComment != "" {
			found = append(found, name)
		}
		found = append(found, described(name, pair[1])...)
	}
	return found
}
