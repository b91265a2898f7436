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
	paths = append(paths, sidecars...)
	slices.Sort(paths)
	return slices.Compact(paths)
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

// sidecars are the commands of well-known sidecars in their official images and injectors, ordered by the sidecar's name.
var sidecars = []string{
	"/alloydb-auth-proxy",
	"/cloud-sql-proxy",
	"/cloud_sql_proxy",
	"/usr/local/bin/consul-dataplane",
	"/daprd",
	"/usr/bin/envoy",
	"/usr/local/bin/envoy",
	"/usr/local/bin/docker-entrypoint",
	"/usr/share/filebeat/filebeat",
	"/fluent-bit/bin/fluent-bit",
	"/opt/fluent-bit/bin/fluent-bit",
	"/usr/bin/fluentd",
	"/usr/local/bundle/bin/fluentd",
	"/usr/local/bin/pilot-agent",
	"/usr/bin/kuma-dp",
	"/usr/lib/linkerd/linkerd-await",
	"/usr/lib/linkerd/linkerd2-proxy",
	"/usr/lib/linkerd/linkerd2-proxy-identity",
	"/usr/sbin/nginx",
	"/bin/oauth2-proxy",
	"/otelcol",
	"/otelcol-contrib",
	"/otelcol-k8s",
	"/usr/bin/telegraf",
	"/bin/vault",
	"/usr/bin/vector",
	"/usr/local/bin/vector",
}
