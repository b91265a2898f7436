//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Names of the containers that most tests have.
const (
	MainName    = "main"
	SidecarName = "sidecar"
)

// GracePeriodSeconds is the grace period of pods unless a test sets its own. A busy node needs seconds to deliver SIGTERM. If a container
// ends while containerd sends SIGKILL, the kubelet does not start it again with another image.
const GracePeriodSeconds = 10

// Scripts of sidecars, named after how they end.
const (
	// ExitsZeroOnTerm runs until SIGTERM and exits 0.
	ExitsZeroOnTerm = `trap 'exit 0' TERM; sleep 3600 & wait`
	// ExitsSevenOnTerm runs until SIGTERM and exits 7.
	ExitsSevenOnTerm = `trap 'exit 7' TERM; sleep 3600 & wait`
	// IgnoresTerm runs until SIGKILL.
	IgnoresTerm = `trap '' TERM; while :; do sleep 1; done`
)

// Container returns a container that runs a shell script.
func Container(name, script string) corev1.Container {
	return corev1.Container{
		Name:            name,
		Image:           BusyboxImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{"/bin/sh", "-c", script},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi"),
		}},
	}
}

// Main returns the main container, which succeeds after the given seconds.
func Main(seconds int) corev1.Container { return Container(MainName, fmt.Sprintf("sleep %d", seconds)) }

// Sidecar returns the container that Policy declares a sidecar.
func Sidecar(script string) corev1.Container { return Container(SidecarName, script) }

// WithEnv returns the container with environment variables, given as names and values in turn.
func WithEnv(container corev1.Container, namesAndValues ...string) corev1.Container {
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		container.Env = append(container.Env, corev1.EnvVar{Name: namesAndValues[i], Value: namesAndValues[i+1]})
	}
	return container
}

// StartedFile is a file in each container of a pod of ReportStart. It exists once the main container runs.
const StartedFile = "/started/main"

// ExitsDuringMain returns the script of a sidecar that exits with the code while the main container of ReportStart runs. If it is
// restarted, it runs the other script.
//
// A native sidecar must run when the kubelet starts the main container, and again after the main container is done: the kubelet
// ends the pod when it sees the last init container run (computeInitContainerActions in pkg/kubelet/kuberuntime).
func ExitsDuringMain(exitCode int, restarted string) string {
	return fmt.Sprintf("[ -e /started/sidecar ] && { %s; }; until [ -e %s ]; do sleep 0.1; done; : > /started/sidecar; exit %d",
		restarted, StartedFile, exitCode)
}

// ReportStart lets the main container tell the other containers of the pod that it runs.
func ReportStart(pod *corev1.PodSpec) {
	ShareDirectory(pod, path.Dir(StartedFile))
	for i := range pod.Containers {
		if container := &pod.Containers[i]; container.Name == MainName {
			last := len(container.Command) - 1
			container.Command[last] = ": > " + StartedFile + "; " + container.Command[last]
		}
	}
}

// ShareDirectory mounts an empty directory into all containers of a pod.
func ShareDirectory(pod *corev1.PodSpec, mountPath string) {
	volume := path.Base(mountPath)
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = append(containers[i].VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: mountPath})
		}
	}
}

// PodTemplate returns a pod template whose containers start in the given order.
func PodTemplate(restartPolicy corev1.RestartPolicy, containers ...corev1.Container) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy:                 restartPolicy,
		Containers:                    containers,
		TerminationGracePeriodSeconds: ptr.To[int64](GracePeriodSeconds),
		AutomountServiceAccountToken:  ptr.To(false),
	}}
}

// MountHostDirectory mounts a directory of this machine into one regular container. The node must run on this machine.
func MountHostDirectory(pod *corev1.PodSpec, container, directory, mountPath string) {
	volume := path.Base(mountPath)
	pod.Volumes = append(pod.Volumes, corev1.Volume{
		Name: volume, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory}},
	})
	for i := range pod.Containers {
		if mounting := &pod.Containers[i]; mounting.Name == container {
			mounting.VolumeMounts = append(mounting.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: mountPath})
		}
	}
}

// Job returns a Job of one pod with backoffLimit 3.
func Job(name string, restartPolicy corev1.RestartPolicy, containers ...corev1.Container) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](3), Template: PodTemplate(restartPolicy, containers...)},
	}
}

// Pod returns a pod without a controller.
func Pod(name string, labels map[string]string, template corev1.PodTemplateSpec) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: template.Spec}
}

// Policy returns a policy for every pod of its namespace that declares the containers sidecars, by default the one that Sidecar
// returns.
func Policy(mode v1alpha1.Mode, sidecars ...string) *v1alpha1.SidecarTerminationPolicy {
	if len(sidecars) == 0 {
		sidecars = []string{SidecarName}
	}
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}}
	policy.Spec.Mode = mode
	for _, name := range sidecars {
		policy.Spec.Sidecars = append(policy.Spec.Sidecars, v1alpha1.Sidecar{Name: name})
	}
	if mode == v1alpha1.ModeImage {
		policy.Spec.Image = QuickExitImage
	}
	return policy
}

const (
	gateMount = "/gate"
	gateFile  = "open"
)

// Gate keeps the main containers of pods running until the test opens it. It is a host directory, so the pods must run on nodes with a
// kubelet: a virtual node mounts none.
type Gate struct {
	test      *Test
	directory string
}

// Gate returns a gate for pods.
func (t *Test) Gate(pods ...*corev1.PodTemplateSpec) *Gate {
	t.Helper()
	gate := &Gate{t, t.TempDir()}
	for _, pod := range pods {
		gate.Hold(pod)
	}
	return gate
}

// Hold makes the pod's main container run until the gate is opened, and then succeed.
func (g *Gate) Hold(pod *corev1.PodTemplateSpec) {
	MountHostDirectory(&pod.Spec, MainName, g.directory, gateMount)
	for i := range pod.Spec.Containers {
		if container := &pod.Spec.Containers[i]; container.Name == MainName {
			container.Command = Container(MainName, "until [ -e "+path.Join(gateMount, gateFile)+" ]; do sleep 1; done").Command
		}
	}
}

// Open lets the main containers end. It is idempotent.
func (g *Gate) Open() {
	g.test.Helper()
	if err := os.WriteFile(filepath.Join(g.directory, gateFile), nil, 0o600); err != nil {
		g.test.Fatalf("Open the gate: %v", err)
	}
}

// KruiseGroupVersion is the API version of OpenKruise that the tests use.
var KruiseGroupVersion = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1alpha1"}

// Object returns an object of a kind whose type the tests do not have.
func Object(kind schema.GroupVersionKind, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(kind)
	object.SetName(name)
	return object
}

// Kruise returns an object of an OpenKruise kind.
func Kruise(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return Object(KruiseGroupVersion.WithKind(kind), name, spec)
}

// ToMap returns what the pointer points to as unstructured content.
func ToMap(object any) map[string]any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err)
	}
	return fields
}

// KruiseList returns an empty list of an OpenKruise kind.
func KruiseList(kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(KruiseGroupVersion.WithKind(kind + "List"))
	return list
}
