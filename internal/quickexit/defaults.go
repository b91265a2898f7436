// SPDX-License-Identifier: Apache-2.0

package quickexit

import (
	"path"
	"slices"
)

// DefaultPaths returns the default paths of an image, sorted: shells and process supervisors in every directory where
// distributions keep them, and the commands of well-known sidecars in their official images.
func DefaultPaths() []string {
	return slices.Clone(defaultPaths)
}

// defaultPaths are computed once, because they are checked for every container.
var defaultPaths = collectDefaultPaths()

func collectDefaultPaths() []string {
	paths := []string{Entrypoint}
	for _, tool := range tools {
		for _, directory := range tool.directories {
			paths = append(paths, path.Join(directory, tool.name))
		}
	}
	for _, sidecar := range sidecars {
		paths = append(paths, sidecar.Paths...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Sidecar is a well-known sidecar, and the paths of its command in its official image or injector.
type Sidecar struct {
	Name  string
	Paths []string
}

// DefaultSidecars returns the sidecars whose paths are default paths.
func DefaultSidecars() []Sidecar {
	copied := slices.Clone(sidecars)
	for index := range copied {
		copied[index].Paths = slices.Clone(copied[index].Paths)
	}
	return copied
}

// tools are programs that shell-form commands, wrappers and hooks start with.
var tools = []struct {
	name        string
	directories []string
}{
	{"sh", []string{"/bin", "/usr/bin"}},
	{"bash", []string{"/bin", "/usr/bin", "/usr/local/bin"}},
	{"ash", []string{"/bin", "/usr/bin"}},
	{"dash", []string{"/bin", "/usr/bin"}},
	{"busybox", []string{"/bin", "/usr/bin"}},
	{"env", []string{"/bin", "/usr/bin"}},
	{"nice", []string{"/bin", "/usr/bin"}},
	{"nohup", []string{"/usr/bin"}},
	{"sleep", []string{"/bin", "/usr/bin"}},
	{"tail", []string{"/bin", "/usr/bin"}},
	{"timeout", []string{"/bin", "/usr/bin"}},
	{"catatonit", []string{"/usr/bin"}},
	{"dumb-init", []string{"/bin", "/usr/bin", "/usr/local/bin"}},
	{"su-exec", []string{"/sbin", "/usr/bin"}},
	{"tini", []string{"/", "/bin", "/sbin", "/usr/bin", "/usr/local/bin"}},
	{"docker-entrypoint.sh", []string{"/", "/usr/local/bin"}},
	{"entrypoint.sh", []string{"/", "/bin"}},
}

// sidecars are ordered by name.
var sidecars = []Sidecar{
	{"alloydb-auth-proxy", []string{"/alloydb-auth-proxy"}},
	{"cloud-sql-proxy", []string{"/cloud-sql-proxy", "/cloud_sql_proxy"}},
	{"consul-dataplane", []string{"/usr/local/bin/consul-dataplane"}},
	{"daprd", []string{"/daprd"}},
	{"envoy", []string{"/usr/bin/envoy", "/usr/local/bin/envoy"}},
	{"filebeat", []string{"/usr/local/bin/docker-entrypoint", "/usr/share/filebeat/filebeat"}},
	{"fluent-bit", []string{"/fluent-bit/bin/fluent-bit", "/opt/fluent-bit/bin/fluent-bit"}},
	{"fluentd", []string{"/usr/bin/fluentd", "/usr/local/bundle/bin/fluentd"}},
	{"istio-proxy", []string{"/usr/local/bin/pilot-agent"}},
	{"kuma-dp", []string{"/usr/bin/kuma-dp"}},
	{"linkerd-proxy", []string{
		"/usr/lib/linkerd/linkerd-await",
		"/usr/lib/linkerd/linkerd2-proxy",
		"/usr/lib/linkerd/linkerd2-proxy-identity",
	}},
	{"nginx", []string{"/usr/sbin/nginx"}},
	{"oauth2-proxy", []string{"/bin/oauth2-proxy"}},
	{"opentelemetry-collector", []string{"/otelcol", "/otelcol-contrib", "/otelcol-k8s"}},
	{"telegraf", []string{"/usr/bin/telegraf"}},
	{"vault", []string{"/bin/vault"}},
	{"vector", []string{"/usr/bin/vector", "/usr/local/bin/vector"}},
}
