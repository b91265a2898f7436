// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// knownNames are the names that injectors and charts give to sidecars.
var knownNames = []string{
	"alloydb-auth-proxy", "aws-for-fluent-bit", "cloud-sql-proxy", "cloudsql-proxy", "consul-dataplane", "daprd", "datadog-agent",
	"dind", "envoy", "envoy-sidecar", "filebeat", "fluent-bit", "fluentbit", "fluentd", "gke-gcsfuse-sidecar", "istio-proxy",
	"jaeger-agent", "kuma-sidecar", "linkerd-proxy", "oauth2-proxy", "opentelemetry-collector", "otc-container", "otel-collector",
	"pgbouncer", "promtail", "telegraf", "vault-agent", "vector", "xray-daemon",
}

// knownImages are the last parts of the image repositories of sidecars.
var knownImages = []string{
	"alloy", "alloydb-auth-proxy", "aws-for-fluent-bit", "aws-xray-daemon", "cloud-sql-proxy", "cloudsql-docker", "consul-dataplane",
	"daprd", "datadog-agent", "envoy", "filebeat", "fluent-bit", "fluentd", "gce-proxy", "jaeger-agent", "kuma-dp", "linkerd-proxy",
	"oauth2-proxy", "opentelemetry-collector", "opentelemetry-collector-contrib", "pgbouncer", "promtail", "proxyv2", "telegraf",
	"vector",
}

// knownSidecar returns the name or image that marks the container as a well-known sidecar, or nothing.
func knownSidecar(container *corev1.Container) string {
	if slices.Contains(knownNames, container.Name) {
		return "name " + container.Name
	}
	repository, _, _ := strings.Cut(container.Image, "@")
	last := repository[strings.LastIndex(repository, "/")+1:]
	last, _, _ = strings.Cut(last, ":")
	if slices.Contains(knownImages, last) {
		return "image " + last
	}
	return ""
}
