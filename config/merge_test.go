// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"maps"
	"testing"
)

// component includes the component like users do.
const component = `
resources: [base.yaml]
components: [CONFIG/kustomize/component]
`

// patchSpec returns a patch of a SidecarTerminationPolicy.
func patchSpec(name, spec string) string {
	return `
patches:
- patch: |-
    apiVersion: sidecartermination.dev/v1alpha1
    kind: SidecarTerminationPolicy
    metadata: {name: ` + name + `}
    spec: ` + spec + "\n"
}

const foreignSchema = `{"definitions": {"com.example.v1.Thing": {"type": "object",
  "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Thing"}]}}}`

// userOverlay is a user's kustomization. Its directory has the files of testdata/users and the other files.
type userOverlay struct {
	kustomization string
	files         map[string]string
	want          fields
}

func (o userOverlay) render(t *testing.T) resources {
	t.Helper()
	files := map[string]string{"kustomization.yaml": o.kustomization}
	for _, name := range []string{"base.yaml", "policies.yaml", "builtin.yaml"} {
		files[name] = string(readConfig(t, "testdata/users/"+name))
	}
	maps.Copy(files, o.files)
	return render(t, writeFiles(t, files))
}

// Queries of policies p and c.
const (
	sidecars       = " {range .spec.sidecars[*]}{.name},{.drainSeconds},{.image} {end}"
	sidecarsOfP    = "SidecarTerminationPolicy/p" + sidecars
	sidecarsOfC    = "ClusterSidecarTerminationPolicy/c" + sidecars
	namespaceOfC   = "ClusterSidecarTerminationPolicy/c {.metadata.namespace}"
	imageOfP       = "SidecarTerminationPolicy/p {.spec.image}"
	imageOfC       = "ClusterSidecarTerminationPolicy/c {.spec.image}"
	imagesOfD      = "Deployment/d {.spec.template.spec.containers[*].image}"
	unmergedOfP    = "fluent-bit,20, vault-agent,,"
	mergedOfP      = "fluent-bit,20,quick-exit:2 istio-proxy,1, vault-agent,,"
	withBothKinds  = "patches: [{path: policies.yaml}]\n"
	mirroredImages = "images: [{name: quick-exit, newName: mirror.example/quick-exit, newTag: v9}, {name: one, newTag: '7'}]\n"
)

// overlays are what docs/kustomize.md promises.
func overlays(t *testing.T) map[string]userOverlay {
	t.Helper()
	builtins := fields{
		imagesOfD: "one:1 two:2", "Deployment/d {.spec.template.spec.containers[*].ports[*].protocol}": "TCP UDP",
		"Job/j {.spec.template.spec.containers[*].image}":                  "main:1 proxy:1",
		"Job/j {.spec.template.spec.containers[*].env[*]['name','value']}": "A KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT a true",
	}
	return map[string]userOverlay{
		"patches merge sidecars by name": {kustomization: component + withBothKinds, want: fields{
			sidecarsOfP: mergedOfP, sidecarsOfC: "fluent-bit,20,quick-exit:3 istio-proxy,1, vault-agent,,",
		}},
		"without the component, patches replace sidecars": {kustomization: "resources: [base.yaml]\n" + withBothKinds, want: fields{sidecarsOfP: unmergedOfP}},
		"patches of built-in kinds and policies":          {kustomization: component + "patches: [{path: policies.yaml}, {path: builtin.yaml}]\n", want: builtins},
		// A replaced list would make extract a sidecar, and terminate it early.
		"patches add main containers": {kustomization: component + patchSpec("mains", `{mainContainers: [report, load]}`), want: fields{
			"SidecarTerminationPolicy/mains {.spec.mainContainers[*]}": "extract load report",
		}},
		// The paths belong to the previous image.
		"patches replace quickExitPaths": {
			kustomization: component + patchSpec("p", `{sidecars: [{name: fluent-bit, image: "own:1", quickExitPaths: [/opt/own]}]}`),
			want: fields{
				sidecarsOfP: "fluent-bit,2,own:1 istio-proxy,1,", "SidecarTerminationPolicy/p {.spec.sidecars[*].quickExitPaths[*]}": "/opt/own",
			},
		},
		"$patch: delete": {kustomization: component + patchSpec("p", `{sidecars: [{name: istio-proxy, $patch: delete}]}`), want: fields{sidecarsOfP: "fluent-bit,2,quick-exit:2"}},
		// kustomize uses the first schema that it reads, which is the user's.
		"own schema in a file": {
			kustomization: "openapi: {path: own.json}" + component + withBothKinds + mirroredImages, files: map[string]string{"own.json": foreignSchema},
			want: fields{sidecarsOfP: unmergedOfP, imageOfP: "mirror.example/quick-exit:v9"},
		},
		"own schema with the snippet": {
			kustomization: "openapi: {path: own.json}\nnamespace: batch\nresources: [base.yaml]\n" + withBothKinds,
			files:         map[string]string{"own.json": string(readConfig(t, "kustomize/component/policies.json"))},
			want:          fields{sidecarsOfP: mergedOfP, namespaceOfC: ""},
		},
		"images": {kustomization: component + mirroredImages, want: fields{
			imageOfP: "mirror.example/quick-exit:v9", sidecarsOfP: "fluent-bit,2,mirror.example/quick-exit:v9 istio-proxy,1,",
			imageOfC: "mirror.example/quick-exit:v9", sidecarsOfC: "fluent-bit,2,mirror.example/quick-exit:v9 istio-proxy,1,", imagesOfD: "one:7 two:1",
		}},
		"names and namespace": {kustomization: component + "namePrefix: team-\nnameSuffix: -v2\nnamespace: batch\n", want: fields{
			"SidecarTerminationPolicy/team-p-v2 {.metadata.namespace}": "batch", "ClusterSidecarTerminationPolicy/team-c-v2 {.metadata.namespace}": "",
			"Deployment/team-d-v2 {.metadata.namespace}": "batch",
		}},
		"pull secrets": {
			kustomization: component + `
namePrefix: etl-
secretGenerator:
- {name: registry, literals: ["key=value"]}
patches:
- target: {kind: SidecarTerminationPolicy, name: p}
  patch: |-
    - {op: add, path: /spec/prePull, value: {imagePullSecrets: [{name: registry}, {name: elsewhere}]}}
`,
			want: fields{"SidecarTerminationPolicy/etl-p {.spec.prePull.imagePullSecrets[*].name}": "elsewhere etl-registry-55ff4k8ggt", "Secret/etl-registry-55ff4k8ggt {.data.key}": "dmFsdWU="},
		},
		// An added label would make the selector match fewer pods.
		"labels skip selectors of policies": {kustomization: component + "labels: [{pairs: {env: prod}, includeSelectors: true}]\n", want: fields{
			"SidecarTerminationPolicy/p {.metadata.labels.env} {.spec.podSelector}": "prod {}",
		}},
		// A preset includes the component.
		"presets, patched": {
			kustomization: `
namespace: batch
resources: [CONFIG/presets/istio-proxy, CONFIG/presets/fluent-bit]
images: [{name: quick-exit, newName: mirror.example/quick-exit, newTag: v2}]
` + patchSpec("fluent-bit", `{podSelector: {matchLabels: {team: etl}}, sidecars: [{name: fluent-bit, drainSeconds: 7}, {name: uploader, mode: Image, image: quick-exit}]}`),
			want: fields{
				"SidecarTerminationPolicy/fluent-bit" + sidecars:                                                 "fluent-bit,7, uploader,,mirror.example/quick-exit:v2",
				"SidecarTerminationPolicy/fluent-bit {.spec.sidecars[*].exitCodePolicy}":                         "Ignore",
				"SidecarTerminationPolicy/fluent-bit {.metadata.namespace} {.spec.podSelector.matchLabels.team}": "batch etl",
				"SidecarTerminationPolicy/istio-proxy" + sidecars:                                                "istio-proxy,0,",
			},
		},
		"presets, cluster-wide": {
			kustomization: `
namespace: batch
resources: [CONFIG/presets/istio-proxy, CONFIG/presets/dapr]
components: [CONFIG/kustomize/cluster-wide]
patches:
- target: {kind: ClusterSidecarTerminationPolicy, name: dapr}
  patch: |-
    apiVersion: sidecartermination.dev/v1alpha1
    kind: ClusterSidecarTerminationPolicy
    metadata: {name: dapr}
    spec: {namespaceSelector: {matchLabels: {dapr: enabled}}, sidecars: [{name: log-shipper}]}
`,
			want: fields{
				"ClusterSidecarTerminationPolicy/istio-proxy {.metadata.namespace} {.spec.sidecars[*].name}": "istio-proxy",
				"ClusterSidecarTerminationPolicy/dapr {.metadata.namespace} {.spec.sidecars[*].name}":        "daprd log-shipper",
				"ClusterSidecarTerminationPolicy/dapr {.spec.namespaceSelector.matchLabels}":                 `{"dapr":"enabled"}`,
			},
		},
		"the operator's images": {
			kustomization: `
resources: [CONFIG/default, CONFIG/samples]
components: [CONFIG/kustomize/component]
images:
- {name: ghcr.io/sidecar-termination/sidecar-termination-operator, newName: mirror.example/operator}
- {name: ghcr.io/sidecar-termination/quick-exit, newName: mirror.example/quick-exit, newTag: v9}
- {name: registry.example/quick-exit, newName: mirror.example/sidecars}
`,
			want: fields{
				"Deployment/" + deployment + " {.spec.template.spec.containers[0].image}":        "mirror.example/operator:v0.1.0",
				"Deployment/" + deployment + " {.spec.template.spec.containers[0].env[*].value}": "460MiB mirror.example/quick-exit:v9",
				"SidecarTerminationPolicy/per-sidecar {.spec.sidecars[2].image}":                 "mirror.example/sidecars:v1",
			},
		},
	}
}

func TestUserOverlays(t *testing.T) {
	for name, tc := range overlays(t) {
		t.Run(name, func(t *testing.T) { requireFields(t, tc.render(t), tc.want) })
	}
}
