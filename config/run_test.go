// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// startTimeout limits the start and the first action of the operator on a busy machine.
const startTimeout = time.Minute

// The operator runs with the overlay's flags and its ServiceAccount's permissions, marks a pod and terminates its sidecar with a mode of
// the overlay. It would log a missing permission. There is no OpenKruise on the server.
func TestOperatorRunsWithGrantedPermissions(t *testing.T) {
	program := build(t)
	for overlay, mode := range map[string]v1alpha1.Mode{
		"default":                v1alpha1.ModePodPhase,
		"overlays/kruise":        v1alpha1.ModePodPhase,
		"overlays/daemonless":    v1alpha1.ModePodPhase,
		"overlays/virtual-nodes": v1alpha1.ModeImage,
		"overlays/restricted":    v1alpha1.ModeImage,
		namespacedOverlay:        v1alpha1.ModeImage,
	} {
		t.Run(overlay, func(t *testing.T) { testRights(t, program, overlay, mode) })
	}
	t.Run("metrics", func(t *testing.T) { testMetrics(t, program) })
}

// terminatedBy reports whether the operator and the admission policy have written what the mode needs.
func terminatedBy(pod *corev1.Pod, mode v1alpha1.Mode) bool {
	record := pod.Annotations[v1alpha1.AnnotationMainContainers]
	if mode == v1alpha1.ModeImage {
		return record == v1alpha1.MainsSucceeded+"/"+string(pod.UID) && pod.Annotations[v1alpha1.AnnotationImageSwap] != ""
	}
	return record == v1alpha1.MainsDecided+"/"+string(pod.UID) && pod.Status.Phase == corev1.PodSucceeded
}

func testRights(t *testing.T, program, overlay string, mode v1alpha1.Mode) {
	t.Helper()
	rendered := apply(t, overlay)
	c, _ := installOutcome(t)
	space := "batch" // the namespace of the overlay for single namespaces
	if overlay != namespacedOverlay {
		space = newNamespace(t)
	}
	policy, pod := finishedPodIn(t, c, space)
	operator := start(t, program, append(arguments(t, rendered), "--metrics-bind-address=0")...)

	ready := operator.eventually(operator.isReady)
	acted := ready && operator.eventually(func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) == nil && terminatedBy(pod, mode)
	})
	reported := acted && operator.eventually(func() bool {
		return c.Get(t.Context(), client.ObjectKeyFromObject(policy), policy) == nil && policy.Status.ObservedGeneration > 0
	})
	operator.stop(t)

	if !ready || !acted || !reported || strings.Contains(operator.log.String(), "forbidden") {
		t.Errorf("ready: %t, terminated by mode %s: %t, reported on the policy: %t; annotations %v; the log must not contain forbidden:\n%s",
			ready, mode, acted, reported, pod.Annotations, &operator.log)
	}
	lease := &coordinationv1.Lease{}
	name := client.ObjectKey{Namespace: namespace, Name: settings.LeaseName}
	if err := c.Get(t.Context(), name, lease); err != nil {
		t.Errorf("get the lease: %v", err)
	}
}

// arguments returns the operator's arguments with expanded environment variables.
func arguments(t *testing.T, rendered resources) []string {
	t.Helper()
	operator := only[appsv1.Deployment](t, rendered, "Deployment")
	expanded, _ := source.OperatorArguments(&operator)
	return expanded
}

// finishedPod creates a pod whose main container has succeeded while its sidecar runs, in its own namespace with a policy. No
// kubelet runs it.
func finishedPod(t *testing.T, c client.Client) (*v1alpha1.SidecarTerminationPolicy, *corev1.Pod) {
	t.Helper()
	return finishedPodIn(t, c, newNamespace(t))
}

func finishedPodIn(t *testing.T, c client.Client, space string) (*v1alpha1.SidecarTerminationPolicy, *corev1.Pod) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "rights-"}}
	create(t, c, node)
	policy := newPolicy(space)
	create(t, c, policy)
	pod := podtest.New(podtest.MainDone, podtest.InNamespace(space, "job"), func(p *corev1.Pod) {
		p.Spec.NodeName, p.Spec.Containers[1].Command = node.Name, []string{"/bin/sh"}
		p.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "setup:1"}}
	})
	status := pod.Status
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "default"}})
	create(t, c, pod)
	pod.Status = status
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return policy, pod
}

// create creates the object and deletes it when the test ends, as far as possible without controllers.
func create(tb testing.TB, c client.Client, object client.Object) {
	tb.Helper()
	if err := c.Create(tb.Context(), object); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Delete(context.Background(), object, client.GracePeriodSeconds(0)) })
}

// build builds the operator.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "manager")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("build the operator: %v\n%s", err, output)
	}
	return program
}

// operatorKubeconfig writes a kubeconfig that impersonates the operator's ServiceAccount.
func operatorKubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["server"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	user := operatorUser()
	config.AuthInfos["operator"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: server.CertData, ClientKeyData: server.KeyData, Impersonate: user.UserName, ImpersonateGroups: user.Groups,
	}
	config.Contexts["operator"] = &clientcmdapi.Context{Cluster: "server", AuthInfo: "operator"}
	config.CurrentContext = "operator"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// running is an operator with the permissions of its ServiceAccount.
type running struct {
	process *os.Process
	ended   chan error
	health  string
	log     bytes.Buffer // read it after the operator has exited
}

// start starts the program with the arguments and its own address for probes.
func start(t *testing.T, program string, args ...string) *running {
	t.Helper()
	r := &running{ended: make(chan error, 1), health: testenv.FreeAddress(t)}
	operator := exec.CommandContext(t.Context(), program,
		append(args, "--leader-election-namespace="+namespace, "--health-probe-bind-address="+r.health)...)
	operator.Env = append(os.Environ(), "KUBECONFIG="+operatorKubeconfig(t))
	operator.Stdout, operator.Stderr = &r.log, &r.log
	if err := operator.Start(); err != nil {
		t.Fatal(err)
	}
	r.process = operator.Process
	go func() { r.ended <- operator.Wait() }()
	return r
}

// stop sends SIGTERM to the operator and fails the test if it exits with an error.
func (r *running) stop(t *testing.T) {
	t.Helper()
	// Fails if the operator has already exited, which the caller notices.
	_ = r.process.Signal(syscall.SIGTERM)
	if err := <-r.ended; err != nil {
		t.Errorf("the operator exited with an error: %v", err)
	}
}

func (r *running) isReady() bool {
	response, err := http.Get("http://" + r.health + "/readyz")
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// eventually reports whether the condition becomes true while the operator runs.
func (r *running) eventually(condition func() bool) bool {
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if len(r.ended) > 0 {
			return false
		}
		if condition() {
			return true
		}
	}
	return false
}
