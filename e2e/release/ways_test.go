//go:build e2e && release

// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/checkout"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/internal/settings"
)

// localPatches are the files of config/overlays/local that adapt the operator to the local cluster, whose pods cannot reach the API
// server by a pod network.
var localPatches = []string{"namespace.yaml", "deployment.yaml", "poddisruptionbudget.yaml"}

// write writes files into a new directory, and the patches of the local cluster.
func (i *installer) write(contents map[string]string, patches ...string) string {
	i.Helper()
	directory, err := filepath.EvalSymlinks(i.TempDir())
	if err != nil {
		i.Fatal(err)
	}
	for _, name := range patches {
		content, err := os.ReadFile(filepath.Join(i.Repository, "config", "overlays", "local", name))
		if err != nil {
			i.Fatal(err)
		}
		contents[name] = strings.ReplaceAll(string(content), "imagePullPolicy: Never", "imagePullPolicy: IfNotPresent")
	}
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			i.Fatal(err)
		}
	}
	return directory
}

func (i *installer) apply(kustomization string) {
	i.Helper()
	i.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", kustomization)
}

// manifest installs install.yaml.
func manifest(i *installer) way {
	install := func(release files) {
		content, err := os.ReadFile(release.path(dist.InstallFile))
		if err != nil {
			i.Fatal(err)
		}
		i.apply(i.write(map[string]string{dist.InstallFile: string(content), "kustomization.yaml": `
sortOptions: {order: fifo}
resources: [install.yaml]
patches: [{path: namespace.yaml}, {path: deployment.yaml}, {path: poddisruptionbudget.yaml}]
`}, localPatches...))
	}
	return way{
		namespace: settings.Namespace, deployment: settings.DeploymentName,
		install: install, rollBack: install,
		uninstall: func(release files) {
			i.kubectl("delete", "--ignore-not-found", "--filename", release.path(dist.InstallFile))
		},
	}
}

// chart installs the chart: the first release from its archive, and the upgrade from a registry.
func chart(i *installer) way {
	const namespace = settings.Namespace
	values := i.write(map[string]string{
		"values.yaml": "replicas: 1\n",
		"kustomization.yaml": `
resources: [rendered.yaml]
patches: [{path: deployment.yaml, target: {kind: Deployment}}]
`,
	}, "deployment.yaml")
	render := filepath.Join(values, "render.sh")
	script := fmt.Sprintf("#!/bin/sh\ncat >'%s/rendered.yaml' && exec kubectl kustomize '%[1]s'\n", values)
	if err := os.WriteFile(render, []byte(script), 0o700); err != nil {
		i.Fatal(err)
	}
	options := []string{"--namespace", namespace, "--values", filepath.Join(values, "values.yaml"), "--post-renderer", render}
	registry := harness.StartRegistry(i.T)
	installed := false
	return way{
		namespace: namespace, deployment: settings.DeploymentName,
		install: func(release files) {
			version := strings.TrimPrefix(release.version, "v")
			if !installed {
				i.kubectl("create", "namespace", namespace)
				archive := release.path(dist.ChartFile(version))
				i.helm(append([]string{"install", settings.Name, archive, "--set", "crds.install=false"}, options...)...)
				i.helm(append([]string{"upgrade", settings.Name, archive, "--reset-values"}, options...)...)
				installed = true
				return
			}
			i.helm("push", release.path(dist.ChartFile(version)), "oci://"+registry.Reference("charts"), "--plain-http")
			reference := "oci://" + registry.Reference("charts/"+settings.Name)
			i.helm(append([]string{"upgrade", settings.Name, reference, "--version", version, "--plain-http", "--reset-values"}, options...)...)
		},
		rollBack: func(files) { i.helm("rollback", settings.Name, "--namespace", namespace) },
		uninstall: func(release files) {
			i.helm("uninstall", settings.Name, "--namespace", namespace, "--wait")
			i.kubectl("delete", "--filename", release.path(dist.CRDFile))
			i.kubectl("delete", "namespace", namespace)
		},
	}
}

// monitoring are definitions of the kinds of the Prometheus operator, without a schema.
var monitoring = map[string]string{"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}

// overlay installs the manifests of the checkout with all components, a prefix, a suffix, another namespace, and images that nodes
// pull from a mirror.
func overlay(i *installer) way {
	registry := harness.StartRegistry(i.T)
	i.mirror = registry.Reference("mirror/")
	var definitions strings.Builder
	for kind, plural := range monitoring {
		fmt.Fprintf(&definitions, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: %[1]s, plural: %[2]s}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, kind, plural)
	}
	file := filepath.Join(i.write(map[string]string{"definitions.yaml": definitions.String()}), "definitions.yaml")
	i.kubectl("apply", "--filename", file)
	i.kubectl("wait", "--for=condition=Established", "--filename", file)
	i.Cleanup(func() { i.kubectl("delete", "--ignore-not-found", "--filename", file) })

	rendered := ""
	install := func(release files) {
		references := checkout.References{Operator: i.mirror + settings.Name + ":" + release.version}
		if _, err := checkout.Push(i.Context(), release.path("images"), references, ociimage.PushOptions{Replace: true}); err != nil {
			i.Fatal(err)
		}
		base := i.write(map[string]string{}, localPatches...)
		config, err := filepath.Rel(base, filepath.Join(i.Repository, "config"))
		if err != nil {
			i.Fatal(err)
		}
		var components []string
		for _, component := range []string{"alerts", "dashboard", "network-policy", "service-monitor"} {
			components = append(components, config+"/components/"+component)
		}
		kustomization := fmt.Sprintf(`
sortOptions: {order: fifo}
resources: [%s/default]
components: [%s]
patches: [{path: namespace.yaml}, {path: deployment.yaml}, {path: poddisruptionbudget.yaml}]
`, config, strings.Join(components, ", "))
		if err := os.WriteFile(filepath.Join(base, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
			i.Fatal(err)
		}
		named := i.write(map[string]string{"kustomization.yaml": fmt.Sprintf(`
namespace: batch-system
namePrefix: acme-
nameSuffix: -blue
sortOptions: {order: fifo}
resources: [../%s]
images:
- {name: %[2]s%[3]s, newName: %[4]s%[3]s, newTag: %[5]s}
- {name: %[2]squick-exit, newName: %[4]squick-exit, newTag: %[5]s}
`, filepath.Base(base), registryOfReleases, settings.Name, i.mirror, release.version)})
		i.apply(named)
		rendered = named
	}
	return way{
		namespace: "batch-system", deployment: "acme-" + settings.DeploymentName + "-blue",
		install: install, rollBack: install,
		uninstall: func(files) { i.kubectl("delete", "--ignore-not-found", "--kustomize", rendered) },
	}
}
