// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const (
	// podTemplate and firstContainer are paths in the Deployment.
	podTemplate    = deployment + " spec.template."
	firstContainer = podTemplate + "spec.containers.0."

	serviceMonitor   = "ServiceMonitor sidecar-termination-controller-manager"
	endpoint         = serviceMonitor + " spec.endpoints.0."
	prometheusRule   = "PrometheusRule sidecar-termination-operator"
	dashboard        = "ConfigMap sidecar-termination-dashboard"
	networkPolicy    = "NetworkPolicy sidecar-termination-controller-manager"
	lease            = "Lease sidecar-termination-operator.sidecartermination.dev"
	disruptionBudget = "PodDisruptionBudget sidecar-termination-controller-manager"
	serviceAccount   = "ServiceAccount sidecar-termination-controller-manager"
)

var definitions = []string{
	"CustomResourceDefinition clustersidecarterminationpolicies.sidecartermination.dev",
	"CustomResourceDefinition sidecarterminationpolicies.sidecartermination.dev",
}

// outcome are the admission policy that decides outcomes and its binding, and guards those that keep them and protect the marks.
var (
	outcome = []string{"MutatingAdmissionPolicy sidecar-termination-outcome", "MutatingAdmissionPolicyBinding sidecar-termination-outcome"}
	guards  = []string{
		"ValidatingAdmissionPolicy sidecar-termination-marks", "ValidatingAdmissionPolicyBinding sidecar-termination-marks",
		"ValidatingAdmissionPolicy sidecar-termination-phase", "ValidatingAdmissionPolicyBinding sidecar-termination-phase",
	}
)

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

// requireFields requires scalar fields of the rendered objects by their paths. An absent field is nil, and a key of an object alone is true.
func requireFields(t *testing.T, rendered objects, want map[string]any) {
	t.Helper()
	all, got := map[string]any{}, map[string]any{}
	for key, object := range rendered {
		all[key] = true
		flatten(key+" ", object.Object, all)
	}
	for path := range want {
		got[path] = all[path]
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("fields (-want +got):\n%s", difference)
	}
}

// The chart passes on most values as they are. TestChartEqualsKustomization has those that turn features on or off.
func TestValuesArePassedOn(t *testing.T) {
	peer := []any{values{"namespaceSelector": values{"matchLabels": values{"team": "observability"}}}}
	for _, tc := range []struct {
		path  string
		value any
		at    string
	}{
		{"image.pullPolicy", "Always", firstContainer + "imagePullPolicy"},
		{"imagePullSecrets", []any{values{"name": "mirror"}}, podTemplate + "spec.imagePullSecrets"},
		{"volumes", []any{values{"name": "metrics", "secret": values{"secretName": "metrics"}}}, podTemplate + "spec.volumes"},
		{"volumeMounts", []any{values{"name": "metrics", "mountPath": "/certificates"}}, firstContainer + "volumeMounts"},
		{"replicas", 3, deployment + " spec.replicas"},
		{"resources", values{"limits": values{"memory": "1Gi"}}, firstContainer + "resources"},
		{"resources", values{"limits": values{"memory": nil}}, firstContainer + "resources"},
		{"deploymentAnnotations", values{"reload": "true"}, deployment + " metadata.annotations"},
		{"podAnnotations", values{"scrape": "true"}, podTemplate + "metadata.annotations"},
		{"podSecurityContext", values{"runAsUser": nil, "runAsGroup": nil}, podTemplate + "spec.securityContext"},
		{"containerSecurityContext", values{"readOnlyRootFilesystem": nil}, firstContainer + "securityContext"},
		{"nodeSelector", values{"os": "linux"}, podTemplate + "spec.nodeSelector"},
		{"tolerations", []any{values{"key": "infra"}}, podTemplate + "spec.tolerations"},
		{"affinity", values{"nodeAffinity": values{"example": "x"}}, podTemplate + "spec.affinity"},
		{"topologySpreadConstraints", []any{values{"topologyKey": "zone"}}, podTemplate + "spec.topologySpreadConstraints"},
		{"priorityClassName", "system-cluster-critical", podTemplate + "spec.priorityClassName"},
		{"strategy", values{"rollingUpdate": values{"maxSurge": 0}}, deployment + " spec.strategy"},
		{"revisionHistoryLimit", 0, deployment + " spec.revisionHistoryLimit"},
		{"livenessProbe", values{"periodSeconds": 60}, firstContainer + "livenessProbe"},
		{"readinessProbe", values{"failureThreshold": 5}, firstContainer + "readinessProbe"},
		{"serviceAccount.annotations", values{"team": "batch"}, serviceAccount + " metadata.annotations"},
		{"serviceMonitor.namespace", "monitoring", serviceMonitor + " metadata.namespace"},
		{"serviceMonitor.labels", values{"release": "prometheus"}, serviceMonitor + " metadata.labels"},
		{"serviceMonitor.interval", "1m", endpoint + "interval"},
		{"serviceMonitor.scrapeTimeout", "5s", endpoint + "scrapeTimeout"},
		{"serviceMonitor.relabelings", []any{values{"action": "labeldrop"}}, endpoint + "relabelings"},
		{"serviceMonitor.metricRelabelings", []any{values{"action": "keep"}}, endpoint + "metricRelabelings"},
		{"serviceMonitor.tlsConfig", values{"insecureSkipVerify": nil, "serverName": "operator"}, endpoint + "tlsConfig"},
		{"prometheusRule.namespace", "monitoring", prometheusRule + " metadata.namespace"},
		{"prometheusRule.labels", values{"release": "prometheus"}, prometheusRule + " metadata.labels"},
		{"dashboard.namespace", "monitoring", dashboard + " metadata.namespace"},
		{"dashboard.labels", values{"grafana_dashboard": "yes"}, dashboard + " metadata.labels"},
		{"dashboard.annotations", values{"grafana_folder": "Jobs"}, dashboard + " metadata.annotations"},
		{"networkPolicy.metricsFrom", peer, networkPolicy + " spec.ingress.0.from"},
		{"networkPolicy.apiServer", []any{values{"ports": []any{values{"port": 8443}}}}, networkPolicy + " spec.egress"},
	} {
		t.Run(fmt.Sprintf("%s %v", tc.path, tc.value), func(t *testing.T) {
			parent, field, nested := strings.Cut(tc.path, ".")
			given, want := values{parent: tc.value}, map[string]any{}
			if nested {
				given = values{parent: values{field: tc.value}}
			}
			if slices.Contains([]string{"serviceMonitor", "prometheusRule", "dashboard", "networkPolicy"}, parent) {
				given[parent].(values)["enabled"] = true
			}
			flatten(tc.at+".", tc.value, want)
			requireFields(t, render(t, given), want)
		})
	}
}

func TestValuesWithOwnEffects(t *testing.T) {
	on := values{"enabled": true}
	memory := func(limit any) values { return values{"resources": values{"limits": values{"memory": limit}}} }
	for name, tc := range map[string]struct {
		values values
		want   map[string]any
	}{
		"flags": {values{"flags": values{"default-exit-code-policy": "Respect", "zap-log-level": 2}}, map[string]any{
			firstContainer + "args.2": "--default-exit-code-policy=Respect", firstContainer + "args.3": "--zap-log-level=2",
		}},
		"env": {values{"env": []any{values{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}}}, map[string]any{
			firstContainer + "env.3.name": "HTTPS_PROXY", firstContainer + "env.3.value": "http://proxy.example:3128",
		}},
		"labels of pods": {values{"podLabels": values{"team": "batch", "app.kubernetes.io/component": "other"}}, map[string]any{
			podTemplate + "metadata.labels.team": "batch", podTemplate + "metadata.labels.app.kubernetes.io/component": "controller-manager",
		}},
		"no disruption budget": {values{"podDisruptionBudget": values{"enabled": false}}, map[string]any{disruptionBudget: nil}},
		"last resort": {values{"modes": values{"podPhase": "LastResort"}}, map[string]any{
			firstContainer + "args.2": "--pod-phase=LastResort",
		}},
		"foreign service account":    {values{"serviceAccount": values{"create": false}}, map[string]any{serviceAccount: nil}},
		"definitions kept elsewhere": {values{"crds": values{"install": false}}, map[string]any{definitions[0]: nil, definitions[1]: nil}},
		"definitions are not kept": {values{"crds": values{"keep": false}}, map[string]any{
			definitions[0] + " metadata.annotations.helm.sh/resource-policy": nil,
		}},
		"service account": {values{"serviceAccount": values{"name": "batch"}}, map[string]any{
			serviceAccount: nil, "ServiceAccount batch": true, podTemplate + "spec.serviceAccountName": "batch",
			"RoleBinding sidecar-termination-leader-election-rolebinding subjects.0.name": "batch",
			"ClusterRoleBinding sidecar-termination-manager-rolebinding subjects.0.name":  "batch",
			"ValidatingAdmissionPolicy sidecar-termination-operator-limits spec.matchConditions.0.expression": "request.userInfo.username." +
				"matches('^system:serviceaccount:[^:]+:[^:]*batch[^:]*$')",
		}},
		"extra object": {values{"extraObjects": []any{
			values{"apiVersion": "v1", "kind": "ConfigMap", "metadata": values{"name": "{{ .Release.Name }}-extra"}},
		}}, map[string]any{"ConfigMap sidecar-termination-operator-extra": true}},
		"further egress": {values{"networkPolicy": values{"enabled": true, "egress": []any{values{"ports": []any{values{"port": 53}}}}}}, map[string]any{
			networkPolicy + " spec.egress.1.ports.0.port": float64(53),
		}},
		"monitor in another namespace": {values{"serviceMonitor": values{"enabled": true, "namespace": "monitoring"}}, map[string]any{
			serviceMonitor + " spec.namespaceSelector.matchNames.0": namespace,
		}},
		"no authentication of metrics": {values{"flags": values{"metrics-authentication": "Disabled"}, "serviceMonitor": on}, map[string]any{
			endpoint + "scheme": "http", endpoint + "bearerTokenFile": nil,
		}},
		"authentication in single namespaces": {
			values{"watchNamespaces": []any{"batch"}, "flags": values{"metrics-authentication": "Enabled"}, "serviceMonitor": on},
			map[string]any{firstContainer + "args.4": "--metrics-authentication=Enabled", endpoint + "scheme": "https"},
		},
		"memory in Gi":    {memory("1Gi"), map[string]any{firstContainer + "env.1.value": "921MiB"}},
		"memory in M":     {memory("1000M"), map[string]any{firstContainer + "env.1.value": "858MiB"}},
		"memory in bytes": {memory("2147483648"), map[string]any{firstContainer + "env.1.value": "1843MiB"}},
		"no memory limit": {memory(nil), map[string]any{firstContainer + "env.1.value": ""}},
		"monitor without authentication": {values{"watchNamespaces": []any{"batch", "etl"}, "serviceMonitor": on}, map[string]any{
			firstContainer + "args.2": "--watch-namespaces=batch,etl", firstContainer + "args.3": "--metrics-authentication=Disabled",
			endpoint + "scheme": "http", endpoint + "bearerTokenFile": nil, "Role sidecar-termination-manager-role in etl": true,
		}},
	} {
		t.Run(name, func(t *testing.T) { requireFields(t, render(t, tc.values), tc.want) })
	}
	for key, object := range render(t, everything) {
		if object.GetLabels()["team"] != "batch" || object.GetAnnotations()["team"] != "batch" {
			t.Errorf("%s lacks commonLabels or commonAnnotations: %v, %v", key, object.GetLabels(), object.GetAnnotations())
		}
	}
}

func TestImagesFollowValues(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	const operator, quickExit = "ghcr.io/sidecar-termination/sidecar-termination-operator", "ghcr.io/sidecar-termination/quick-exit:v0.1.0"
	for name, tc := range map[string]struct {
		values              values
		operator, quickExit string
	}{
		"registry": {values{"imageRegistry": "mirror.example:5000/ghcr/"},
			"mirror.example:5000/ghcr/sidecar-termination/sidecar-termination-operator:v0.1.0",
			"mirror.example:5000/ghcr/sidecar-termination/quick-exit:v0.1.0"},
		"repository":             {values{"image": values{"repository": "mirror.example/operator"}}, "mirror.example/operator:v0.1.0", quickExit},
		"no quick-exit image":    {values{"quickExitImage": ""}, operator + ":v0.1.0", ""},
		"short name":             {mirrored("quick-exit:v1"), mirroredOperator, "mirror.example/quick-exit:v1"},
		"name without registry":  {mirrored("team/quick-exit:v1"), mirroredOperator, "mirror.example/team/quick-exit:v1"},
		"registry localhost":     {mirrored("localhost/quick-exit"), mirroredOperator, "mirror.example/quick-exit"},
		"registry with port":     {mirrored("registry.example:5000/a/b:v1"), mirroredOperator, "mirror.example/a/b:v1"},
		"quick-exit with digest": {mirrored("registry.example/b@" + digest), mirroredOperator, "mirror.example/b@" + digest},
	} {
		t.Run(name, func(t *testing.T) {
			requireFields(t, render(t, tc.values), map[string]any{firstContainer + "image": tc.operator, firstContainer + "env.0.value": tc.quickExit})
		})
	}
}

const mirroredOperator = "mirror.example/sidecar-termination/sidecar-termination-operator:v0.1.0"

func mirrored(quickExit string) values {
	return values{"imageRegistry": "mirror.example", "quickExitImage": quickExit}
}

// The schema has exactly the values that a comment in values.yaml describes.
func TestEachValueIsDescribed(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository, "config", "chart", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	inFile := described("", document.Content[0])
	var schema map[string]any
	if err := json.Unmarshal(load(t).Schema, &schema); err != nil {
		t.Fatal(err)
	}
	var inSchema []string
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		inner, _ := schema["properties"].(map[string]any)
		if inner != nil && schema["additionalProperties"] != false {
			t.Errorf("the schema allows unknown values below %q", path)
		}
		if inner == nil || slices.Contains(inFile, path) {
			inSchema = append(inSchema, path)
			return
		}
		for key, value := range inner {
			walk(strings.TrimPrefix(path+"."+key, "."), value.(map[string]any))
		}
	}
	walk("", schema)
	// Helm adds this one for subcharts.
	inSchema = slices.DeleteFunc(inSchema, func(path string) bool { return path == "global" })
	slices.Sort(inSchema)
	slices.Sort(inFile)
	if difference := cmp.Diff(inFile, inSchema); difference != "" {
		t.Errorf("values (-values.yaml +schema):\n%s", difference)
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
