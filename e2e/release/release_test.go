//go:build e2e && release

// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
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
		{"Chart", chart},
		{"Overlay", overlay},
	} {
		t.Run(tc.name, func(t *testing.T) {
			test := harness.New(t)
			i := &installer{Test: test, plugin: t.TempDir()}
			previous, current := directory(t, previousVariable), directory(t, releaseVariable)
			i.load(previous)
			i.load(current)
			i.unpackPlugin(current)
			i.requireNoOperator()
			way := tc.way(i)
			before := i.objects()
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(i.describe(way))
					i.removeAll(way, current)
				}
			})

			way.install(previous)
			i.waitFor(way, previous)
			policy, image := policies()
			test.Create(policy, image)
			i.requireImageMode("before", previous)

			i.whileJobsRun("upgrade", func() {
				way.install(current)
				i.waitFor(way, current)
			})
			i.requireKept(policy)
			i.requireImageMode("upgraded", current)
			i.requireCheck(way)

			i.whileJobsRun("rollback", func() {
				way.rollBack(previous)
				i.waitFor(way, previous)
			})
			i.requireKept(policy)

			i.deletePolicies()
			way.uninstall(previous)
			i.requireSame(before)
		})
	}
}

// files are the files of a release.
type files struct{ directory, version string }

func (f files) path(name ...string) string {
	return filepath.Join(append([]string{f.directory}, name...)...)
}

func directory(t *testing.T, variable string) files {
	t.Helper()
	path, err := filepath.Abs(os.Getenv(variable))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, "install.yaml")); err != nil {
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
	i.RequireImage(i.RequireCompleted(job), harness.SidecarName, i.quickExitImage(release))
}

// Jobs that run during a change: some end before, during and soon after it, others only when it is over.
const (
	shortJobs  = 8
	stepOfJobs = 3 // seconds
	longJobs   = 3
)

// whileJobsRun makes a change while Jobs run, and requires that all of them complete and that nothing is stuck.
func (i *installer) whileJobsRun(name string, change func()) {
	i.Helper()
	var jobs []string
	var gates []*harness.Gate
	for n := range shortJobs + longJobs {
		job := harness.Job(fmt.Sprintf("%s-%d", name, n), corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(n*stepOfJobs))
		job.Spec.Template.Labels = map[string]string{modeLabel: "auto"}
		if n >= shortJobs {
			gates = append(gates, i.Gate(&job.Spec.Template))
		}
		i.Create(job)
		jobs = append(jobs, job.Name)
	}
	for _, job := range jobs[shortJobs:] {
		i.WaitForRunning(job)
	}
	change()
	for _, gate := range gates {
		gate.Open()
	}
	for _, job := range jobs {
		i.RequireCompleted(job)
	}
	policy, _ := policies()
	policy.Namespace = i.Namespace
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
	if want := filepath.Base(os.Getenv(releaseVariable)); !containsWord(version, want) {
		i.Errorf("The plugin has version %q, want %s", version, want)
	}
}

func (i *installer) deletePolicies() {
	i.Helper()
	i.kubectl("delete", "clustersidecarterminationpolicies,sidecarterminationpolicies", "--all", "--all-namespaces")
}

// operatorImage and quickExitImage are the images in the manifests of a release.
func operatorImage(release files) string {
	return registryOfReleases + settings.Name + ":" + release.version
}
