//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os"
	"path"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

const (
	gateMount = "/gate"
	gateFile  = "open"
)

// Gate keeps a main container running until the test opens it. It is a host directory, so the pod must run on a node with a
// kubelet: a virtual node mounts none.
type Gate struct {
	test *Test
	file string
}

// Gate makes the pod's main container run until the returned gate is opened, and then succeed.
func (t *Test) Gate(pod *corev1.PodTemplateSpec) *Gate {
	t.Helper()
	directory := t.TempDir()
	MountHostDirectory(&pod.Spec, MainName, directory, gateMount)
	for i := range pod.Spec.Containers {
		if container := &pod.Spec.Containers[i]; container.Name == MainName {
			container.Command = Container(MainName, "until [ -e "+path.Join(gateMount, gateFile)+" ]; do sleep 1; done").Command
		}
	}
	return &Gate{t, filepath.Join(directory, gateFile)}
}

// Open lets the main container end. It is idempotent.
func (g *Gate) Open() {
	g.test.Helper()
	if err := os.WriteFile(g.file, nil, 0o600); err != nil {
		g.test.Fatalf("Open the gate: %v", err)
	}
}
