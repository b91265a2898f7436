// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// base contains a policy of each kind, and built-in kinds with two containers each.
const base = `
apiVersion: sidecartermination.dev/v1alpha1
kind: SidecarTerminationPolicy
metadata: {name: p}
spec:
  podSelector: {}
  image: quick-exit:1
  sidecars:
  - {name: istio-proxy, drainSeconds: 1}
  - {name: fluent-bit, image: "quick-exit:2", quickExitPaths: [default, /app/shipper], drainSeconds: 2}
---
apiVersion: sidecartermination.dev/v1alpha1
kind: ClusterSidecarTerminationPolicy
metadata: {name: c}
spec:
  podSelector: {}
  image: quick-exit@sha256:aaaa
  sidecars:
  - {name: istio-proxy, drainSeconds: 1}
  - {name: fluent-bit, image: "quick-exit:3", drainSeconds: 2}
---
apiVersion: sidecartermination.dev/v1alpha1
kind: SidecarTerminationPolicy
metadata: {name: mains}
spec:
  podSelector: {}
  mainContainers: [extract, load]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  template:
    spec:
      containers:
      - {name: one, image: "one:1", ports: [{containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: UDP}]}
      - {name: two, image: "two:1"}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: "main:1", env: [{name: A, value: a}]}
      - {name: proxy, image: "proxy:1"}
`

const builtinPatch = `
- patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: d}
    spec: {template: {spec: {containers: [{name: two, image: "two:2"}]}}}
- patch: |-
    apiVersion: batch/v1
    kind: Job
    metadata: {name: j}
    spec: {template: {spec: {containers: [{name: main, env: [{name: KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT, value: "true"}]}]}}}
`

// overlay renders a user's kustomization with base.yaml. CONFIG stands for this directory.
func overlay(t *testing.T, kustomization string) resources {
	t.Helper()
	return render(t, writeFiles(t, map[string]string{"kustomization.yaml": kustomization, "base.yaml": base}))
}

// component includes the component like users do.
const component = `
resources: [base.yaml]
components: [CONFIG/kustomize/component]
`

// patchBothKinds changes one sidecar and adds one in a policy of each kind. It does not name istio-proxy.
const patchBothKinds = `
- target: {group: sidecartermination.dev, name: p}
  patch: |-
    apiVersion: sidecartermination.dev/v1alpha1
    kind: SidecarTerminationPolicy
    metadata: {name: p}
    spec:
      sidecars:
      - {name: fluent-bit, drainSeconds: 20}
      - {name: vault-agent}
- target: {group: sidecartermination.dev, name: c}
  patch: |-
    apiVersion: sidecartermination.dev/v1alpha1
    kind: ClusterSidecarTerminationPolicy
    metadata: {name: c}
    spec:
      sidecars:
      - {name: fluent-bit, drainSeconds: 20}
      - {name: vault-agent}
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

// requireSidecars requires the names of the sidecars of policy p, which are sorted.
func requireSidecars(t *testing.T, rendered resources, want ...string) {
	t.Helper()
	if got := sidecarNames(policy(t, rendered, "p").Spec.PolicySpec); !slices.Equal(got, want) {
		t.Errorf("policy p has sidecars %v, want %v", got, want)
	}
}

func TestPatchesMergeSidecarsByName(t *testing.T) {
	rendered := overlay(t, component+"patches:"+patchBothKinds)
	for name, spec := range map[string]v1alpha1.PolicySpec{
		"SidecarTerminationPolicy":        policy(t, rendered, "p").Spec.PolicySpec,
		"ClusterSidecarTerminationPolicy": clusterPolicy(t, rendered, "c").Spec.PolicySpec,
	} {
		if got, want := sidecarNames(spec), []string{"fluent-bit", "istio-proxy", "vault-agent"}; !slices.Equal(got, want) {
			t.Errorf("%s: sidecars %v, want %v", name, got, want)
		}
		shipper := sidecar(t, spec, "fluent-bit")
		if *shipper.DrainSeconds != 20 || shipper.Image == "" {
			t.Errorf("%s: fluent-bit is %+v, want drainSeconds 20 and its image", name, shipper)
		}
		if *sidecar(t, spec, "istio-proxy").DrainSeconds != 1 {
			t.Errorf("%s: istio-proxy has lost its drainSeconds", name)
		}
	}
}

func TestPatchesReplaceSidecarsWithoutComponent(t *testing.T) {
	rendered := overlay(t, "resources: [base.yaml]\npatches:"+patchBothKinds)
	if got := sidecarNames(policy(t, rendered, "p").Spec.PolicySpec); slices.Contains(got, "istio-proxy") {
		t.Errorf("sidecars %v: kustomize merges them without the component, contrary to docs/kustomize.md", got)
	}
}

func TestPatchesMergeBuiltInKinds(t *testing.T) {
	for name, kustomization := range map[string]string{
		"all patched":               component + "patches:" + patchBothKinds + builtinPatch,
		"built-in kinds patched":    component + "patches:" + builtinPatch,
		"with preset":               "resources: [base.yaml, CONFIG/presets/istio-proxy]\npatches:" + builtinPatch,
		"with preset and component": "resources: [base.yaml, CONFIG/presets/istio-proxy]\ncomponents: [CONFIG/kustomize/component]\npatches:" + builtinPatch,
	} {
		t.Run(name, func(t *testing.T) {
			rendered := overlay(t, kustomization)
			containers := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template.Spec.Containers
			if got := len(containers); got != 2 {
				t.Fatalf("the Deployment has %d containers, want 2", got)
			}
			for _, c := range containers {
				if c.Name == "one" && len(c.Ports) != 2 || c.Name == "two" && c.Image != "two:2" {
					t.Errorf("the Deployment's container is %+v", c)
				}
			}
			pod := only[batchv1.Job](t, rendered, "Job").Spec.Template.Spec
			if got := len(pod.Containers); got != 2 {
				t.Fatalf("the Job has %d containers, want 2", got)
			}
			for _, c := range pod.Containers {
				if c.Name != "main" {
					continue
				}
				if got := environment(c); got["A"] != "a" || got[v1alpha1.EnvTerminate] != "true" || c.Image != "main:1" {
					t.Errorf("the Job's main container is %+v", c)
				}
			}
		})
	}
}

// A replaced list would make extract a sidecar, and terminate it early.
func TestPatchesAddMainContainers(t *testing.T) {
	rendered := overlay(t, component+patchSpec("mains", `{mainContainers: [report, load]}`))
	got := policy(t, rendered, "mains").Spec.MainContainers
	if slices.Sort(got); !slices.Equal(got, []v1alpha1.ContainerName{"extract", "load", "report"}) {
		t.Errorf("mainContainers %v, want extract, load and report", got)
	}
}

// The paths belong to the previous image.
func TestPatchesReplaceQuickExitPaths(t *testing.T) {
	rendered := overlay(t, component+patchSpec("p", `{sidecars: [{name: fluent-bit, image: "own:1", quickExitPaths: [/opt/own]}]}`))
	got := sidecar(t, policy(t, rendered, "p").Spec.PolicySpec, "fluent-bit")
	if got.Image != "own:1" || !slices.Equal(got.QuickExitPaths, []v1alpha1.QuickExitPath{"/opt/own"}) {
		t.Errorf("fluent-bit has image %s with quickExitPaths %v", got.Image, got.QuickExitPaths)
	}
}

func TestPatchDeletesSidecar(t *testing.T) {
	rendered := overlay(t, component+patchSpec("p", `{sidecars: [{name: istio-proxy, $patch: delete}]}`))
	requireSidecars(t, rendered, "fluent-bit")
}

func TestPatchReplacesSidecars(t *testing.T) {
	rendered := overlay(t, component+patchSpec("p", `{sidecars: [{$patch: replace}, {name: vault-agent}]}`))
	requireSidecars(t, rendered, "vault-agent")
}

func TestJSONPatchAppendsSidecar(t *testing.T) {
	rendered := overlay(t, `
resources: [base.yaml]
patches:
- target: {kind: SidecarTerminationPolicy, name: p}
  patch: |-
    - {op: add, path: /spec/sidecars/-, value: {name: vault-agent}}
`)
	requireSidecars(t, rendered, "fluent-bit", "istio-proxy", "vault-agent")
}

const foreignSchema = `{"definitions": {"com.example.v1.Thing": {"type": "object",
  "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Thing"}]}}}`

// kustomize uses the first schema that it reads, which is the user's.
func TestUserSchemaDisablesComponentSchema(t *testing.T) {
	for name, schema := range map[string]string{
		"file":    "openapi: {path: own.json}",
		"version": "openapi: {version: v1.21.2}",
	} {
		t.Run(name, func(t *testing.T) {
			rendered := render(t, writeFiles(t, map[string]string{
				"kustomization.yaml": schema + component + "patches:" + patchBothKinds + "images: [{name: quick-exit, newName: mirror/quick-exit}]\n",
				"base.yaml":          base,
				"own.json":           foreignSchema,
			}))
			spec := policy(t, rendered, "p").Spec.PolicySpec
			if got, want := sidecarNames(spec), []string{"fluent-bit", "vault-agent"}; !slices.Equal(got, want) {
				t.Errorf("sidecars %v, want %v as docs/kustomize.md says", got, want)
			}
			if got, want := spec.Image, "mirror/quick-exit:1"; got != want {
				t.Errorf("image %s, want %s", got, want)
			}
		})
	}
}

func TestBaseSchemaDisablesComponentSchema(t *testing.T) {
	rendered := render(t, writeFiles(t, map[string]string{
		"kustomization.yaml":        "resources: [theirs]\ncomponents: [CONFIG/kustomize/component]\npatches:" + patchBothKinds,
		"theirs/kustomization.yaml": "openapi: {path: own.json}\nresources: [base.yaml]\n",
		"theirs/own.json":           foreignSchema,
		"theirs/base.yaml":          base,
	}))
	requireSidecars(t, rendered, "fluent-bit", "vault-agent")
}

func TestSchemaSnippetMergesPolicies(t *testing.T) {
	snippet, err := os.ReadFile("kustomize/component/policies.json")
	if err != nil {
		t.Fatal(err)
	}
	rendered := render(t, writeFiles(t, map[string]string{
		"kustomization.yaml": "openapi: {path: own.json}\nnamespace: batch\nresources: [base.yaml]\npatches:" + patchBothKinds,
		"base.yaml":          base,
		"own.json":           string(snippet),
	}))
	requireSidecars(t, rendered, "fluent-bit", "istio-proxy", "vault-agent")
	if got := clusterPolicy(t, rendered, "c").Namespace; got != "" {
		t.Errorf("the cluster policy has namespace %s", got)
	}
}

func TestPolicyImagesAreRewritten(t *testing.T) {
	rendered := overlay(t, component+`
images:
- {name: quick-exit, newName: mirror.example/quick-exit, newTag: v9}
- {name: one, newTag: "7"}
`)
	for name, spec := range map[string]v1alpha1.PolicySpec{
		"SidecarTerminationPolicy":        policy(t, rendered, "p").Spec.PolicySpec,
		"ClusterSidecarTerminationPolicy": clusterPolicy(t, rendered, "c").Spec.PolicySpec,
	} {
		const want = "mirror.example/quick-exit:v9"
		if shipper := sidecar(t, spec, "fluent-bit").Image; spec.Image != want || shipper != want {
			t.Errorf("%s: images %s and %s, want %s", name, spec.Image, shipper, want)
		}
		if got := sidecar(t, spec, "istio-proxy").Image; got != "" {
			t.Errorf("%s: istio-proxy has image %s", name, got)
		}
	}
	containers := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template.Spec.Containers
	if got := containers[0].Image; got != "one:7" {
		t.Errorf("the Deployment's image is %s, want one:7", got)
	}
}

func TestNamePrefixAndNamespace(t *testing.T) {
	rendered := overlay(t, component+"namePrefix: team-\nnameSuffix: -v2\nnamespace: batch\n")
	if p := policy(t, rendered, "team-p-v2"); p.Namespace != "batch" {
		t.Errorf("the policy has namespace %q, want batch", p.Namespace)
	}
	if c := clusterPolicy(t, rendered, "team-c-v2"); c.Namespace != "" {
		t.Errorf("the cluster policy has namespace %q, want none", c.Namespace)
	}
	if d := only[appsv1.Deployment](t, rendered, "Deployment"); d.Name != "team-d-v2" || d.Namespace != "batch" {
		t.Errorf("the Deployment is %s/%s", d.Namespace, d.Name)
	}
}

func TestPullSecretsFollowRenames(t *testing.T) {
	rendered := overlay(t, component+`
namePrefix: etl-
secretGenerator:
- {name: registry, literals: ["key=value"]}
patches:
- target: {kind: SidecarTerminationPolicy, name: p}
  patch: |-
    - {op: add, path: /spec/prePull, value: {pullSecrets: [registry, elsewhere]}}
`)
	secret := only[corev1.Secret](t, rendered, "Secret").Name
	got := policy(t, rendered, "etl-p").Spec.PrePull.PullSecrets
	if want := []v1alpha1.SecretName{v1alpha1.SecretName(secret), "elsewhere"}; !slices.Equal(got, want) {
		t.Errorf("got secrets %v, want %v", got, want)
	}
}

// An added label would make the selector match fewer pods.
func TestCommonLabelsSkipPolicySelectors(t *testing.T) {
	rendered := overlay(t, component+"labels: [{pairs: {env: prod}, includeSelectors: true}]\n")
	if got := policy(t, rendered, "p"); got.Labels["env"] != "prod" || len(got.Spec.PodSelector.MatchLabels) > 0 {
		t.Errorf("labels %v and selector %v, want label env and an empty selector", got.Labels, got.Spec.PodSelector)
	}
}

func TestLabelsForPolicySelectors(t *testing.T) {
	rendered := overlay(t, component+
		"labels: [{pairs: {env: prod}, fields: [{path: spec/podSelector/matchLabels, kind: SidecarTerminationPolicy, create: true}]}]\n")
	if got := policy(t, rendered, "p").Spec.PodSelector.MatchLabels; got["env"] != "prod" {
		t.Errorf("the selector is %v, want env=prod", got)
	}
}

func sidecarNames(spec v1alpha1.PolicySpec) []string {
	var names []string
	for _, s := range spec.Sidecars {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

func sidecar(t *testing.T, spec v1alpha1.PolicySpec, name string) v1alpha1.Sidecar {
	t.Helper()
	i := slices.IndexFunc(spec.Sidecars, func(s v1alpha1.Sidecar) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no sidecar %s in %v", name, sidecarNames(spec))
	}
	return spec.Sidecars[i]
}
