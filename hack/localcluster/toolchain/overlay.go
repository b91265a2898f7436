// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sidecar-termination/operator/hack/localcluster/kubelets"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

const kubernetesModule = "k8s.io/kubernetes"

// Kubelet returns the tool that builds the kubelet at a supported version of Kubernetes. It is the tool that builds all of
// Kubernetes, unless the kubelet has edits.
func Kubelet(version string, kubelet kubelets.Kubelet) Tool {
	tool := Kubernetes(version)
	if len(kubelet.Edits) == 0 {
		return tool
	}
	const name = "kubelet"
	return Tool{
		Name:        name + "-" + kubelet.Name + "-" + version,
		Duration:    "2 minutes",
		Packages:    map[string]string{name: tool.Packages[name]},
		LinkerFlags: tool.LinkerFlags,
		Module:      tool.Name,
		Kubelet:     kubelet,
	}
}

// overlay writes edited files of Kubernetes below the directory, and returns the arguments with which the go command builds with
// them. The go command refuses to replace files in the module cache. Therefore the build replaces the module with a link to it.
func (b Builder) overlay(ctx context.Context, tool Tool, directory string) ([]string, error) {
	source, err := b.source(ctx, tool, kubernetesModule)
	if err != nil {
		return nil, err
	}
	edited, err := tool.Kubelet.Apply(source, tool.Version())
	if err != nil {
		return nil, err
	}
	directory = filepath.Join(directory, "overlay")
	if err := os.RemoveAll(directory); err != nil {
		return nil, fmt.Errorf("remove an old overlay: %w", err)
	}
	path := func(name string) string { return filepath.Join(directory, name) }
	link := path("kubernetes")
	replacements := map[string]string{}
	for name, content := range edited {
		file := filepath.Join(path("edited"), name)
		if err := layout.WriteFile(file, content); err != nil {
			return nil, err
		}
		replacements[filepath.Join(link, name)] = file
	}
	if err := os.Symlink(source, link); err != nil {
		return nil, fmt.Errorf("link to the source of Kubernetes: %w", err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replacements})
	if err != nil {
		return nil, fmt.Errorf("encode the overlay: %w", err)
	}
	files := map[string][]byte{"overlay.json": overlay}
	for _, name := range []string{"go.mod", "go.sum"} {
		if files[name], err = os.ReadFile(filepath.Join(b.module(tool), name)); err != nil {
			return nil, fmt.Errorf("read the tool module: %w", err)
		}
	}
	files["go.mod"] = fmt.Appendf(files["go.mod"], "\nreplace %s => %q\n", kubernetesModule, link)
	for name, content := range files {
		if err := layout.WriteFile(path(name), content); err != nil {
			return nil, err
		}
	}
	return []string{"-modfile=" + path("go.mod"), "-overlay=" + path("overlay.json")}, nil
}
