// SPDX-License-Identifier: Apache-2.0

package sidecars

// Boolean values, as the injectors parse them.
var (
	parsed = []string{"true", "t", "1"}
	truthy = []string{"true", "t", "1", "yes", "y", "on"}
	yaml11 = []string{"true", "yes", "y", "on"}
)

// Table has the known sidecars, sorted by their first container.
var Table = []Sidecar{
	{Containers: []string{"alloy"}, Images: []string{"alloy"}, Page: "https://github.com/grafana/alloy", Date: "2026-11"},
	{
		Containers: []string{"alloydb-auth-proxy"}, Images: []string{"alloydb-auth-proxy"},
		Page: "https://github.com/GoogleCloudPlatform/alloydb-auth-proxy", Date: "2026-11",
	},
	{
		Containers: []string{"aws-otel-collector"}, Images: []string{"aws-otel-collector"},
		Page: "https://github.com/aws-observability/aws-otel-collector/blob/main/deployment-template/eks/otel-cloudwatch-sidecar.yaml", Date: "2026-11",
	},
	{
		// Any value of the annotation counts, false too. The image has the ambiguous name proxy.
		Injector: "Azure Workload Identity", Containers: []string{"azwi-proxy"},
		Triggers: []Trigger{{At: PodAnnotation, Key: "azure.workload.identity/inject-proxy-sidecar", Any: true}},
		// https://github.com/Azure/azure-workload-identity/pull/1442
		Native:           Native{Since: "1.5.1", Kubernetes: "1.32"},
		SkipsHostNetwork: true, // it rejects them
		Page:             "https://github.com/Azure/azure-workload-identity/blob/main/pkg/webhook/webhook.go", Date: "2026-11",
	},
	{
		Containers: []string{"cloud-sql-proxy", "cloudsql-proxy"}, Images: []string{"cloud-sql-proxy", "cloudsql-docker", "gce-proxy"}, Preset: "cloud-sql-proxy",
		Page: "https://github.com/GoogleCloudPlatform/cloud-sql-proxy", Date: "2026-11",
	},
	{
		Containers: []string{"cloudwatch-agent"}, Images: []string{"cloudwatch-agent"},
		Page: "https://github.com/aws/amazon-cloudwatch-agent", Date: "2026-11",
	},
	{
		Injector: "Consul", Containers: []string{"consul-dataplane"}, Images: []string{"consul-dataplane"},
		Triggers: []Trigger{{At: PodAnnotation, Key: "consul.hashicorp.com/connect-inject", On: parsed}},
		Native:   Native{Annotations: []string{"consul.hashicorp.com/enable-consul-dataplane-as-sidecar"}},
		Page:     "https://developer.hashicorp.com/consul/docs/reference/k8s/annotation-label", Date: "2026-11",
	},
	{
		// The operator adds the annotation to the templates that its AuthProxyWorkloads select.
		Injector: "Cloud SQL Proxy Operator", Containers: []string{"csql-{namespace}-{name}"},
		Triggers: []Trigger{{At: PodAnnotation, Key: "cloudsql.cloud.google.com/", Any: true}},
		Native:   Native{Setting: "sidecarType: initContainer of the AuthProxyWorkload"},
		Page:     "https://github.com/GoogleCloudPlatform/cloud-sql-proxy-operator/blob/main/docs/api.md", Date: "2026-11",
	},
	{
		Injector: "Dapr", Containers: []string{"daprd"}, Images: []string{"daprd"},
		Triggers: []Trigger{{At: PodAnnotation, Key: "dapr.io/enabled", On: truthy}},
		// https://github.com/dapr/dapr/blob/master/docs/release_notes/v1.18.0.md, read in November 2026.
		Native: Native{Annotations: []string{"dapr.io/enable-native-sidecar"}, AnnotationsSince: "1.18"},
		Preset: "dapr",
		Page:   "https://docs.dapr.io/reference/arguments-annotations-overview/", Date: "2026-11",
	},
	{
		Injector: "Datadog", Containers: []string{"datadog-agent-injected", "datadog-agent"}, Images: []string{"datadog-agent"},
		Triggers: []Trigger{{At: PodLabel, Key: "agent.datadoghq.com/sidecar", Any: true}},
		Page:     "https://docs.datadoghq.com/integrations/eks_fargate/", Date: "2026-11",
	},
	{Containers: []string{"dind"}, Page: "https://hub.docker.com/_/docker", Date: "2026-11"},
	{Containers: []string{"envoy", "envoy-sidecar"}, Images: []string{"envoy"}, Page: "https://github.com/envoyproxy/envoy", Date: "2026-11"},
	{Containers: []string{"filebeat"}, Images: []string{"filebeat"}, Page: "https://www.docker.elastic.co/r/beats/filebeat", Date: "2026-11"},
	{
		Containers: []string{"fluent-bit", "fluentbit", "aws-for-fluent-bit"}, Images: []string{"fluent-bit", "aws-for-fluent-bit"}, Preset: "fluent-bit",
		Page: "https://github.com/fluent/fluent-bit", Date: "2026-11",
	},
	{Containers: []string{"fluentd"}, Images: []string{"fluentd"}, Page: "https://github.com/fluent/fluentd", Date: "2026-11"},
	// With --one-time it ends by itself. Then it is usually an init container.
	{
		Containers: []string{"git-sync"}, Images: []string{"git-sync"},
		Page: "https://github.com/kubernetes/git-sync/blob/master/docs/kubernetes.md", Date: "2026-11",
	},
	{
		Injector: "GKE Cloud Storage FUSE", Containers: []string{"gke-gcsfuse-sidecar"},
		Triggers: []Trigger{{At: PodAnnotation, Key: "gke-gcsfuse/volumes", On: parsed}},
		Native:   Native{Annotations: []string{"gke-gcsfuse/enable-native-sidecar"}, Since: "1.29", Kubernetes: "1.29"},
		EndedBy:  "its CSI driver",
		Page:     "https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/blob/main/docs/known-issues.md", Date: "2026-11",
	},
	{
		// In a namespace with istio-injection=disabled no webhook of Istio sees the pod.
		Injector: "Istio", Containers: []string{"istio-proxy"}, Images: []string{"proxyv2"},
		Triggers: []Trigger{
			{At: NamespaceLabel, Key: "istio-injection", Off: []string{"disabled"}},
			{At: PodLabel, Key: "sidecar.istio.io/inject", On: yaml11},
			{At: PodAnnotation, Key: "sidecar.istio.io/inject", On: yaml11},
			{At: NamespaceLabel, Key: "istio-injection", On: []string{"enabled"}},
			{At: NamespaceLabel, Key: "istio.io/rev", Any: true},
			{At: PodLabel, Key: "istio.io/rev", Any: true},
		},
		Native:           Native{Annotations: []string{"sidecar.istio.io/nativeSidecar"}, Since: "1.27", Kubernetes: "1.33"},
		SkipsHostNetwork: true,
		Preset:           "istio-proxy",
		// The annotation is in https://istio.io/latest/docs/reference/config/annotations/, the default in
		// https://github.com/istio/istio/pull/56428.
		Page: "https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/", Date: "2026-11",
	},
	{Containers: []string{"jaeger-agent"}, Images: []string{"jaeger-agent"}, Page: "https://github.com/jaegertracing/jaeger", Date: "2026-11"},
	{
		Containers: []string{"kuma-sidecar"}, Images: []string{"kuma-dp"},
		EndedBy: "Kuma's control plane",
		Page:    "https://github.com/kumahq/kuma/blob/master/pkg/plugins/runtime/k8s/controllers/pod_status_controller.go", Date: "2026-11",
	},
	{
		Injector: "Linkerd", Containers: []string{"linkerd-proxy"}, Images: []string{"linkerd-proxy"},
		Triggers: []Trigger{
			{At: PodAnnotation, Key: "linkerd.io/inject", On: []string{"enabled", "ingress"}},
			{At: NamespaceAnnotation, Key: "linkerd.io/inject", On: []string{"enabled", "ingress"}},
		},
		// Versions before 2.19 read the alpha annotation. 2.20 reads both others.
		Native: Native{
			Annotations: []string{
				"config.beta.linkerd.io/proxy-enable-native-sidecar", "config.linkerd.io/proxy-enable-native-sidecar",
				"config.alpha.linkerd.io/proxy-enable-native-sidecar",
			},
			Namespace: true, Since: "2.20", Kubernetes: "1.29",
		},
		SkipsHostNetwork: true,
		Preset:           "linkerd-proxy",
		// The default is in https://linkerd.io/2/features/native-sidecars/.
		Page: "https://linkerd.io/2/features/proxy-injection/", Date: "2026-11",
	},
	{
		Containers: []string{"oauth2-proxy"}, Images: []string{"oauth2-proxy"},
		Page: "https://github.com/oauth2-proxy/oauth2-proxy", Date: "2026-11",
	},
	{
		// A value other than false is the name of an OpenTelemetryCollector.
		Injector: "OpenTelemetry Operator", Containers: []string{"otc-container"},
		Triggers: []Trigger{
			{At: PodAnnotation, Key: "sidecar.opentelemetry.io/inject", Off: []string{"false"}, Any: true},
			{At: NamespaceAnnotation, Key: "sidecar.opentelemetry.io/inject", Off: []string{"false"}, Any: true},
		},
		// https://github.com/open-telemetry/opentelemetry-operator/pull/4275
		Native: Native{Since: "0.132.0", Kubernetes: "1.29"},
		Page:   "https://github.com/open-telemetry/opentelemetry-operator#sidecar-injection", Date: "2026-11",
	},
	{
		Containers: []string{"otel-collector", "opentelemetry-collector"},
		Images:     []string{"opentelemetry-collector", "opentelemetry-collector-contrib"},
		Page:       "https://github.com/open-telemetry/opentelemetry-collector-releases", Date: "2026-11",
	},
	{Containers: []string{"pgbouncer"}, Images: []string{"pgbouncer"}, Page: "https://github.com/pgbouncer/pgbouncer", Date: "2026-11"},
	{Containers: []string{"promtail"}, Images: []string{"promtail"}, Page: "https://github.com/grafana/loki", Date: "2026-11"},
	{
		Containers: []string{"tailscale", "ts-sidecar"}, Images: []string{"tailscale"},
		Page: "https://github.com/tailscale/tailscale/blob/main/docs/k8s/sidecar.yaml", Date: "2026-11",
	},
	{Containers: []string{"telegraf"}, Images: []string{"telegraf"}, Page: "https://github.com/influxdata/telegraf", Date: "2026-11"},
	{
		// With agent-pre-populate-only the injector adds an init container only.
		Injector: "Vault Agent Injector", Containers: []string{"vault-agent"},
		Triggers: []Trigger{
			{At: PodAnnotation, Key: "vault.hashicorp.com/agent-pre-populate-only", Off: parsed},
			{At: PodAnnotation, Key: "vault.hashicorp.com/agent-inject", On: parsed},
		},
		Preset: "vault-agent",
		WayOut: "set annotation vault.hashicorp.com/agent-pre-populate-only=true on the pod if it reads its secrets once",
		Page:   "https://developer.hashicorp.com/vault/docs/deploy/kubernetes/injector/annotations", Date: "2026-11",
	},
	{Containers: []string{"vector"}, Images: []string{"vector"}, Page: "https://github.com/vectordotdev/vector", Date: "2026-11"},
	{
		Containers: []string{"xray-daemon"}, Images: []string{"aws-xray-daemon"},
		Page: "https://github.com/aws/aws-xray-daemon", Date: "2026-11",
	},
}
