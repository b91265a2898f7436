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
	gateName  = "gate"
	gateMount = "/" + gateName
	gateFile  = "open"
)

// Gate keeps a main container running until the test has seen what it wants to see of the pod meanwhile, however long
// that takes on a busy machine. It is a directory of this machine, on which the node runs: a virtual node mounts none.
type Gate struct {
	test *Test
	file string
}

// Gate makes the pod's container of the name MainName run until the returned gate is opened, and then succeed.
func (t *Test) Gate(pod *corev1.PodTemplateSpec) *Gate {
	t.Helper()
	directory := t.TempDir()
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: gateName, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory}},
	})
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		if container.Name != MainName {
			continue
		}
		container.Command = Container(MainName, "until [ -e "+path.Join(gateMount, gateFile)+" ]; do sleep 1; done").Command
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: gateName, MountPath: gateMount, ReadOnly: true})
		return &Gate{t, filepath.Join(directory, gateFile)}
	}
	t.Fatalf("The pod has no container %s", MainName)
	return nil
}

// Open lets the main container end. Repeating it is safe.
func (g *Gate) Open() {
	g.test.Helper()
	if err := os.WriteFile(g.file, nil, 0o600); err != nil {
		g.test.Fatalf("Let the main container end: %v", err)
	}
}
