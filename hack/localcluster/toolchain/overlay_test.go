// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
	"github.com/sidecar-termination/operator/hack/localcluster/kubelets"
)

func goCommand(t *testing.T, directory string, arguments ...string) string {
	t.Helper()
	command := exec.Command("go", arguments...)
	command.Dir = directory
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	// Not what it says about downloads.
	var complaints strings.Builder
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, complaints.String())
	}
	return strings.TrimSpace(string(output))
}

// source returns the directory of the version's source. It downloads the source if the module cache lacks it.
func source(t *testing.T, version string) string {
	t.Helper()
	directory, err := builder.source(t.Context(), Kubernetes(version), kubernetesModule)
	if err != nil {
		t.Fatal(err)
	}
	return directory
}

var builder = Builder{Modules: filepath.Join("..", "..", "tools")}

// Every edit applies to every version.
func TestEditsApply(t *testing.T) {
	for _, version := range kubernetesVersions {
		t.Run(version, func(t *testing.T) {
			directory := source(t, version)
			for _, kubelet := range kubelets.All {
				tool := Kubelet(version, kubelet)
				if len(kubelet.Edits) == 0 {
					if tool.Name != Kubernetes(version).Name {
						t.Errorf("kubelet %s has no edits and is built as %s", kubelet.Name, tool.Name)
					}
					continue
				}
				if _, err := kubelet.Apply(directory, version); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// The go command takes the edited files instead of those in the module cache.
func TestOverlay(t *testing.T) {
	for _, version := range kubernetesVersions {
		t.Run(version, func(t *testing.T) {
			const file = "pkg/kubelet/pod_workers.go"
			kubelet := kubelets.Kubelet{Name: "x", Edits: []kubelets.Edit{{File: file, Old: "package kubelet\n", New: "package other\n"}}}
			tool, directory := Kubelet(version, kubelet), t.TempDir()
			arguments, err := builder.overlay(t.Context(), tool, directory)
			if err != nil {
				t.Fatal(err)
			}
			list := slices.Concat([]string{"list", "-e"}, arguments, []string{"-find", "-f", "{{.Dir}}: {{.Error}}", kubernetesModule + "/pkg/kubelet"})
			got := goCommand(t, builder.module(tool), list...)
			if want := filepath.Join(directory, "overlay", "source", "pkg", "kubelet") + ": "; !strings.HasPrefix(got, want) || !strings.Contains(got, "other (pod_workers.go)") {
				t.Errorf("the packages are %s, want %s and two package clauses", got, want)
			}
		})
	}
}

// A tool with a clock takes the module, the version and the edits of the tool without it.
func TestClock(t *testing.T) {
	slow, _ := kubelets.Find("slow")
	for _, test := range []struct {
		tool         Tool
		module       string
		replacements int
	}{
		{Containerd("v1.7.36"), "containerd-v1.7.36", 1},
		{Kubelet("v1.37.2", slow), "kubernetes-v1.37.2", 3},
	} {
		tool, directory := test.tool.WithClock(), t.TempDir()
		if tool.Version() != test.tool.Version() || tool.Name == test.tool.Name || builder.module(tool) != filepath.Join(builder.Modules, test.module) {
			t.Errorf("the tool is %s of module %s", tool.Name, builder.module(tool))
		}
		if _, err := builder.overlay(t.Context(), tool, directory); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(directory, "overlay", "overlay.json"))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(content), ".go\":"); n != test.replacements || !strings.Contains(string(content), "/src/time/time.go\":") {
			t.Errorf("the overlay of %s replaces %d files: %s", tool.Name, n, content)
		}
	}
}

// Feature gates that a version does not have would keep its API server from starting.
func TestFeatureGatesExist(t *testing.T) {
	for _, version := range kubernetesVersions {
		t.Run(version, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(source(t, version), "pkg", "features", "kube_features.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, kubelet := range kubelets.All {
				for gate := range kubelet.FeatureGates(version) {
					if !strings.Contains(string(content), "\n\t"+gate+": {\n") {
						t.Errorf("kubelet %s has the unknown feature gate %s", kubelet.Name, gate)
					}
				}
			}
		})
	}
}

func TestKubeletsHaveDirectoriesOfTheirOwn(t *testing.T) {
	var names []string
	for _, kubelet := range kubelets.All {
		if len(kubelet.Edits) > 0 {
			names = append(names, Kubelet("v1.36.3", kubelet).Name)
		}
	}
	want := []string{"kubelet-ignore-phase-v1.36.3", "kubelet-ignore-phase-merge-v1.36.3", "kubelet-slow-v1.36.3"}
	if !slices.Equal(names, want) {
		t.Errorf("the tools are %v, want %v", names, want)
	}
}

// The go command finds a file that is a link in the repository of the module.
func TestLinks(t *testing.T) {
	for _, addon := range addons.All() {
		for link, target := range addon.Links {
			tool, directory := Addon(addon), t.TempDir()
			arguments, err := builder.overlay(t.Context(), tool, directory)
			if err != nil {
				t.Fatal(err)
			}
			source, err := builder.AddonSource(t.Context(), addon)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(source, link)); err == nil {
				t.Errorf("%s has the file %s, so it needs no link", tool.Name, link)
			}
			if _, err := os.Stat(filepath.Join(source, target)); err != nil {
				t.Error(err)
			}
			list := slices.Concat([]string{"list"}, arguments, []string{"-find", "-f", "{{.GoFiles}}", path.Join(addon.Module, path.Dir(link))})
			if got := goCommand(t, builder.module(tool), list...); !strings.Contains(got, path.Base(link)) {
				t.Errorf("the files of %s are %s, without %s", tool.Name, got, link)
			}
		}
	}
}
