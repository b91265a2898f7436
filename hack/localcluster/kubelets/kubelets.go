// SPDX-License-Identifier: Apache-2.0

// Package kubelets lists kubelets that differ from a released one in feature gates, or in
// small edits of its source. They show how the operator works with kubelets to come.
package kubelets

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Kubelet is one kubelet. The zero kubelet is the released one.
type Kubelet struct {
	Name string
	// Edits change the source of Kubernetes from which only the kubelet is built again.
	Edits []Edit
	// Gates are turned on in the kubelet and in the API server.
	Gates []Gate
	// ContainerEvents says that the container runtime must report events of containers, which containerd does since 1.7.
	ContainerEvents bool
}

// Edit replaces a snippet that occurs exactly once in a file.
type Edit struct {
	// File is relative to the source of Kubernetes.
	File string
	Old  string
	New  string
}

// Gate is a feature gate.
type Gate struct {
	Name string
	// Since is the first minor version that has the gate.
	Since uint
}

// Find returns the kubelet with the name. The empty name is the released kubelet's.
func Find(name string) (Kubelet, bool) {
	if name == "" {
		return Kubelet{}, true
	}
	i := slices.IndexFunc(All, func(kubelet Kubelet) bool { return kubelet.Name == name })
	if i < 0 {
		return Kubelet{}, false
	}
	return All[i], true
}

// Parse returns the kubelet with the name, as Find does.
func Parse(name string) (Kubelet, error) {
	kubelet, known := Find(name)
	if !known {
		return Kubelet{}, fmt.Errorf("there is no kubelet %s: choose one of %s", name, strings.Join(Names(), ", "))
	}
	return kubelet, nil
}

// Names are the names of all kubelets but the released one.
func Names() []string {
	var names []string
	for _, kubelet := range All {
		names = append(names, kubelet.Name)
	}
	return names
}

// Version says which kubelet it is, at a version of Kubernetes.
func (k Kubelet) Version(release string) string {
	if k.Name == "" {
		return release
	}
	return release + " (" + k.Name + ")"
}

// FeatureGates returns those gates that a version of Kubernetes has.
func (k Kubelet) FeatureGates(release string) map[string]bool {
	minor := version.MustParseSemantic(release).Minor()
	gates := map[string]bool{}
	for _, gate := range k.Gates {
		if gate.Since <= minor {
			gates[gate.Name] = true
		}
	}
	return gates
}

// Apply returns the edited files of the source in a directory, by name. The release is for messages.
func (k Kubelet) Apply(directory, release string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, edit := range k.Edits {
		content := string(files[edit.File])
		if content == "" {
			source, err := os.ReadFile(filepath.Join(directory, edit.File))
			if err != nil {
				return nil, fmt.Errorf("patch kubelet %s: read the source of Kubernetes %s: %w", k.Name, release, err)
			}
			content = string(source)
		}
		if n := strings.Count(content, edit.Old); n != 1 {
			return nil, fmt.Errorf("patch kubelet %s: %s of Kubernetes %s has %d times, not once: %s", k.Name, edit.File, release, n, edit.Old)
		}
		files[edit.File] = []byte(strings.Replace(content, edit.Old, edit.New, 1))
	}
	for file, content := range files {
		formatted, err := format.Source(content)
		if err != nil {
			return nil, fmt.Errorf("patch kubelet %s: %s of Kubernetes %s does not parse: %w", k.Name, file, release, err)
		}
		files[file] = formatted
	}
	return files, nil
}
