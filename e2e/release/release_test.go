//go:build e2e && release

// SPDX-License-Identifier: Apache-2.0

// Package release tests what `make release-dry-run` has built, on the local cluster: it installs each package, upgrades it while Jobs
// run, rolls it back and removes it. It needs a cluster without the operator: `make test-release` brings one up.
package release

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Environment variables with the directories of the release and of the one that it upgrades. A directory has the name of its version.
const (
	releaseVariable  = "RELEASE"
	previousVariable = "PREVIOUS_RELEASE"
)

// way installs the operator from the files of a release.
type way struct {
	namespace  string
	deployment string
	// install installs a release, or upgrades the installed one to it.
	install func(files)
	// rollBack goes back to the release before.
	rollBack func(to files)
	// uninstall removes the operator. The test has deleted the policies before.
	uninstall func(files)
}

func TestRelease(t *testing.T) {
	for _, tc := range []struct {
		name string
		way  func(*installer) way
	}{
		{"Manifest", manifest},
		{"Chart", func(i *installer) way { return chart(i) }},
		{"Overlay", overlay},
		{"ManifestToChart", manifestToChart},
	} {
		passed := t.Run(tc.name, func(t *testing.T) {
			test := harness.New(t)
			i := &installer{Test: test, plugin: t.TempDir()}
			previous, current := directory(t, previousVariable), directory(t, releaseVariable)
			i.load(previous)
			i.load(current)
			archive := dist.PluginFile(v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH})
			i.run("tar", "-xzf", current.path(archive), "-C", i.plugin, "--exclude", "LICENSE")
			way := tc.way(i)
			before := i.objects()
			way.install(previous)
			i.waitFor(way, previous)
			policy, image := policies()
			test.Create(policy, image)
			i.requireImageMode("before", previous)

			i.whileJobsRun("upgrade", policy, func() {
				way.install(current)
				i.waitFor(way, current)
			})
			i.requireKept(policy)
			i.requireImageMode("upgraded", current)
			i.requireCheck(way)

			i.whileJobsRun("rollback", policy, func() {
				way.rollBack(previous)
				i.waitFor(way, previous)
			})
			i.requireKept(policy)

			i.kubectl("delete", "clustersidecarterminationpolicies,sidecarterminationpolicies", "--all", "--all-namespaces")
			way.uninstall(previous)
			i.requireSame(before)
		})
		// What a failed test leaves is in the way of the next one. make test-release starts with a new cluster.
		if !passed {
			return
		}
	}
}

// files are the files of a release.
type files struct{ directory, version string }

func (f files) path(name string) string { return filepath.Join(f.directory, name) }

func directory(t *testing.T, variable string) files {
	t.Helper()
	path, err := filepath.Abs(os.Getenv(variable))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, dist.InstallFile)); err != nil {
		t.Fatalf("%s names no directory of a release (run `make test-release`): %v", variable, err)
	}
	return files{directory: path, version: filepath.Base(path)}
}

const modeLabel = "mode"

// policies returns a policy for the Jobs that run during changes, and one for mode Image with the quick-exit image of the release.
func policies() (auto, image *v1alpha1.SidecarTerminationPolicy) {
	auto, image = harness.Policy(v1alpha1.ModeAuto), harness.Policy(v1alpha1.ModeImage)
	auto.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{modeLabel: "auto"}}
	image.Name, image.Spec.Image = "image", ""
	image.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{modeLabel: "image"}}
	return auto, image
}

// requireImageMode requires that mode Image ends a sidecar with the quick-exit image of the release.
func (i *installer) requireImageMode(job string, release files) {
	i.Helper()
	created := harness.Job(job, corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1))
	created.Spec.Template.Labels = map[string]string{modeLabel: "image"}
	i.Create(created)
	image, _, _ := strings.Cut(i.RequireCompleted(job).Image(harness.SidecarName), "@")
	if want := cmp.Or(i.mirror, registryOfReleases) + dist.QuickExitImage + ":" + release.version; image != want {
		i.Errorf("The sidecar has image %s, want %s", image, want)
	}
}

// Jobs that run during a change: some end before, during and soon after it, others only when it is over.
const (
	shortJobs  = 8
	stepOfJobs = 3 // seconds
	longJobs   = 3
)

// whileJobsRun makes a change while Jobs run, and requires that all of them complete and that nothing of the policy is stuck.
func (i *installer) whileJobsRun(name string, policy *v1alpha1.SidecarTerminationPolicy, change func()) {
	i.Helper()
	var jobs []string
	gate := i.Gate()
	for n := range shortJobs + longJobs {
		job := harness.Job(fmt.Sprintf("%s-%d", name, n), corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(n*stepOfJobs))
		job.Spec.Template.Labels = map[string]string{modeLabel: "auto"}
		if n >= shortJobs {
			gate.Hold(&job.Spec.Template)
		}
		i.Create(job)
		jobs = append(jobs, job.Name)
	}
	for _, job := range jobs[shortJobs:] {
		i.WaitForRunning(job)
	}
	change()
	gate.Open()
	for _, job := range jobs {
		i.RequireCompleted(job)
	}
	i.EventuallyStatus(policy, "no pod to be stuck or waiting", func(status v1alpha1.PolicyStatus) error {
		if status.StuckPods != 0 || status.WaitingPods != 0 || status.TerminatingPods != 0 {
			return fmt.Errorf("status %+v", status)
		}
		return nil
	})
}

// requireKept requires that the policy is the one that was created.
func (i *installer) requireKept(created *v1alpha1.SidecarTerminationPolicy) {
	i.Helper()
	found := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: created.Namespace, Name: created.Name}}
	i.Get(found)
	if found.UID != created.UID || !equality.Semantic.DeepEqual(found.Spec, created.Spec) {
		i.Errorf("The policy is %+v, and it was %+v", found, created)
	}
}

// requireCheck requires that the plugin of the release finds no mistake, and explains a Job.
func (i *installer) requireCheck(way way) {
	i.Helper()
	i.Logf("check\n%s", i.kubectl("sidecar-termination", "check", "--operator-namespace="+way.namespace))
	i.Logf("explain\n%s", i.kubectl("sidecar-termination", "explain", "job/upgrade-0", "--namespace="+i.Namespace))
	version := i.kubectl("sidecar-termination", "--version")
	if want := filepath.Base(os.Getenv(releaseVariable)); !slices.Contains(strings.Fields(version), want) {
		i.Errorf("The plugin has version %q, want %s", version, want)
	}
}

const (
	// registryOfReleases is the registry of the images in the manifests.
	registryOfReleases = "ghcr.io/sidecar-termination/"
	commandTimeout     = 4 * time.Minute
)

// installer runs the programs of a user.
type installer struct {
	*harness.Test
	// plugin is the directory with the plugin of kubectl.
	plugin string
	// mirror is the registry of the images, with a slash at its end. If it is empty, the images are those of a release.
	mirror string
}

// run runs a program of a user, and returns its output.
func (i *installer) run(program string, arguments ...string) string {
	i.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	tools := filepath.Join(i.Repository, ".cluster", "bin")
	command.Env = append(os.Environ(), "KUBECONFIG="+i.Kubeconfig, "PATH="+strings.Join([]string{i.plugin, tools, os.Getenv("PATH")}, string(os.PathListSeparator)),
		"HELM_CACHE_HOME="+i.plugin, "HELM_CONFIG_HOME="+i.plugin, "HELM_DATA_HOME="+i.plugin)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		i.Fatalf("%s %s: %v\n%s%s", filepath.Base(program), strings.Join(arguments, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

func (i *installer) kubectl(arguments ...string) string {
	i.Helper()
	return i.run(filepath.Join(i.Repository, ".cluster", "bin", "kubectl"), arguments...)
}

func (i *installer) helm(arguments ...string) {
	i.Helper()
	i.run(filepath.Join(i.Repository, "bin", "helm"), arguments...)
}

// pinned is an image of a release by tag and digest.
var pinned = regexp.MustCompile(`(ghcr\.io/sidecar-termination/[a-z-]+)(:[\w.-]+)(@sha256:[0-9a-f]{64})`)

// load imports the images of a release into the nodes, also by the digests that its manifests name.
func (i *installer) load(release files) {
	i.Helper()
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	archives, err := dist.Save(release.path("images"), i.TempDir(), dist.References{Operator: registryOfReleases + settings.Name + ":" + release.version}, platform)
	if err != nil {
		i.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(i.Repository, ".cluster", "nodes", "*", "containerd", "containerd.sock"))
	if err != nil || len(sockets) == 0 {
		i.Fatalf("No containerd was found (bring up a cluster with `make cluster-up`): %v", err)
	}
	for _, socket := range sockets {
		for _, archive := range archives {
			i.run("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
		}
		for _, image := range pinned.FindAllStringSubmatch(i.read(release.path(dist.InstallFile)), -1) {
			i.run("ctr", "--address", socket, "--namespace", "k8s.io", "images", "tag", "--force", image[1]+image[2], image[1]+image[3])
		}
	}
}

// waitFor waits until the operator of the release runs, and no other.
func (i *installer) waitFor(way way, release files) {
	i.Helper()
	i.kubectl("--namespace="+way.namespace, "rollout", "status", "deployment/"+way.deployment, "--timeout=3m")
	image := i.kubectl("--namespace="+way.namespace, "get", "deployment", way.deployment, "--output=jsonpath={.spec.template.spec.containers[0].image}")
	if tagged, _, _ := strings.Cut(image, "@"); !strings.HasSuffix(tagged, ":"+release.version) {
		i.Fatalf("The operator has the image %s, want version %s", image, release.version)
	}
}

// passing are kinds whose objects come and go by themselves, or that cannot be created. OpenKruise creates a NodeImage for each node.
var passing = []string{"events", "events.events.k8s.io", "componentstatuses", "nodeimages.apps.kruise.io"}

// objects returns all objects of the cluster without the namespaces of tests, sorted.
func (i *installer) objects() []string {
	i.Helper()
	kinds := strings.Fields(i.kubectl("api-resources", "--verbs=list", "--output=name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return slices.Contains(passing, kind) })
	found := strings.Split(i.kubectl("get", strings.Join(kinds, ","), "--all-namespaces", "--ignore-not-found",
		`--output=jsonpath={range .items[*]}{.apiVersion} {.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}`), "\n")
	slices.Sort(found)
	return slices.DeleteFunc(found, func(object string) bool {
		return object == "" || strings.Contains(object, " e2e-") || strings.Contains(object, "/e2e-")
	})
}

// requireSame waits until the cluster has the same objects as before.
func (i *installer) requireSame(before []string) {
	i.Helper()
	i.Eventually("the cluster to have the same objects as before", commandTimeout, func(context.Context) error {
		if difference := gocmp.Diff(before, i.objects()); difference != "" {
			return fmt.Errorf("objects (-before +after):\n%s", difference)
		}
		return nil
	})
	i.Logf("%d objects before and after", len(before))
}

func (i *installer) read(path string) string {
	i.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		i.Fatal(err)
	}
	return string(content)
}

func (i *installer) apply(kustomization string) {
	i.Helper()
	i.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", kustomization)
}

// manifest installs install.yaml.
func manifest(i *installer) way {
	install := func(release files) {
		i.apply(i.WriteKustomization(map[string]string{
			dist.InstallFile:     i.read(release.path(dist.InstallFile)),
			"kustomization.yaml": harness.LocalPatches + "resources: [" + dist.InstallFile + "]\n",
		}))
	}
	return way{
		namespace: settings.Namespace, deployment: settings.DeploymentName,
		install: install, rollBack: install,
		uninstall: func(release files) {
			i.kubectl("delete", "--ignore-not-found", "--filename", release.path(dist.InstallFile))
		},
	}
}

// manifestToChart installs install.yaml, upgrades to the chart, and rolls back to install.yaml.
func manifestToChart(i *installer) way {
	way, toChart := manifest(i), chart(i, "--take-ownership")
	install, installed := way.install, false
	way.install = func(release files) {
		if installed {
			toChart.install(release)
			return
		}
		install(release)
		installed = true
	}
	way.rollBack = func(release files) {
		i.kubectl("delete", "secrets", "--namespace", way.namespace, "--selector", "owner=helm,name="+settings.Name)
		install(release)
	}
	return way
}

// chart installs the chart: the first release from its archive, and the upgrade from a registry. The arguments are for the
// installation; with some, the namespace exists.
func chart(i *installer, arguments ...string) way {
	const namespace = settings.Namespace
	rendering := i.WriteKustomization(map[string]string{
		"values.yaml": "replicas: 1\n",
		"kustomization.yaml": `
resources: [rendered.yaml]
patches: [{path: deployment.yaml, target: {kind: Deployment}}]
`,
		"render.sh": "#!/bin/sh\ncd \"$(dirname \"$0\")\" && cat >rendered.yaml && exec kubectl kustomize .\n",
	})
	options := []string{
		"--namespace", namespace, "--values", filepath.Join(rendering, "values.yaml"), "--post-renderer", filepath.Join(rendering, "render.sh"),
	}
	registry := harness.StartRegistry(i.T)
	installed := false
	return way{
		namespace: namespace, deployment: settings.DeploymentName,
		install: func(release files) {
			version := strings.TrimPrefix(release.version, "v")
			if !installed {
				if len(arguments) == 0 {
					i.kubectl("create", "namespace", namespace)
				}
				i.helm(slices.Concat([]string{"install", settings.Name, release.path(dist.ChartFile(version))}, options, arguments)...)
				installed = true
				return
			}
			i.helm("push", release.path(dist.ChartFile(version)), "oci://"+registry+"charts", "--plain-http")
			reference := "oci://" + registry + "charts/" + settings.Name
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

// overlay installs the manifests of the checkout with components, a prefix, a suffix, another namespace, and images that nodes
// pull from a mirror.
func overlay(i *installer) way {
	i.mirror = harness.StartRegistry(i.T) + "mirror/"
	rendered := ""
	install := func(release files) {
		references := dist.References{Operator: i.mirror + settings.Name + ":" + release.version}
		if _, err := dist.Push(i.Context(), release.path("images"), references); err != nil {
			i.Fatal(err)
		}
		base := i.WriteKustomization(map[string]string{"kustomization.yaml": harness.LocalPatches + `
resources: [CONFIG/default]
components: [CONFIG/components/dashboard, CONFIG/components/network-policy]
`})
		rendered = i.WriteKustomization(map[string]string{"kustomization.yaml": fmt.Sprintf(`
namespace: batch-system
namePrefix: acme-
nameSuffix: -blue
sortOptions: {order: fifo}
resources: [../%s]
images:
- {name: %[2]s%[3]s, newName: %[4]s%[3]s, newTag: %[5]s}
- {name: %[2]s%[6]s, newName: %[4]s%[6]s, newTag: %[5]s}
`, filepath.Base(base), registryOfReleases, dist.OperatorImage, i.mirror, release.version, dist.QuickExitImage)})
		i.apply(rendered)
	}
	return way{
		namespace: "batch-system", deployment: "acme-" + settings.DeploymentName + "-blue",
		install: install, rollBack: install,
		uninstall: func(files) { i.kubectl("delete", "--ignore-not-found", "--kustomize", rendered) },
	}
}
