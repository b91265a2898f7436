//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// Components of the local cluster, and the node that the Jobs run on.
const (
	apiServer     = "kube-apiserver"
	etcd          = "etcd"
	kubelet       = "kubelet"
	containerd    = "containerd"
	kruiseManager = "kruise-manager"
	faultNode     = "node-1"
)

// nodeTimeout is for a node to become NotReady or Ready.
const nodeTimeout = 4 * time.Minute

// restarts returns a fault that restarts components, alternating SIGTERM and SIGKILL. It starts them again when the test ends.
func (f *faultJobs) restarts(components ...string) func() {
	f.Helper()
	for _, component := range components {
		f.RestoreWith("component", "start", component)
	}
	kill := false
	return func() {
		f.Helper()
		end := "stop"
		if kill {
			end = "kill"
		}
		kill = !kill
		for _, component := range components {
			f.LocalCluster("component", end, component)
		}
		for _, component := range components {
			f.LocalCluster("component", "start", component)
		}
	}
}

func always(fault func()) func() bool {
	return func() bool {
		fault()
		return true
	}
}

// The operator may lose its lease and exit. The kubelet restarts it with backoff.
func TestFaultsAPIServerRestarts(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.plan(60)
	f.disturb("API server restarted", exactly(4), every(10*time.Second), always(f.restarts(apiServer)))
}

func TestFaultsEtcdRestarts(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.plan(60)
	f.disturb("etcd restarted", exactly(8), every(5*time.Second), always(f.restarts(etcd)))
}

func TestFaultsKubeletRestarts(t *testing.T) {
	restartDuringTermination(t, kubelet)
}

func TestFaultsKubeletRestartsWithoutSidecars(t *testing.T) {
	onlyWithAllFaults(t)
	restartWithoutSidecars(t, kubelet)
}

// It may leave frozen containers on the node.
func TestFaultsContainerdRestartsWithoutSidecars(t *testing.T) {
	skipUnlessAllFaults(t)
	harness.Last(t)
	restartWithoutSidecars(t, containerd)
}

// restartWithoutSidecars is the control: it restarts the component at any time, with Jobs without sidecars. It reports what the
// restarts alone cause: repeated main containers, failed Jobs and hanging Jobs. It requires the number of faults, and that no
// pod leaves a terminal phase.
func restartWithoutSidecars(t *testing.T, component string) {
	t.Helper()
	f := newFaultJobs(t)
	f.control = true
	restart := f.restarts(component)
	f.plan(60)
	f.disturb(component+" restarted at any time, Jobs without sidecars", exactly(8), between(2*time.Second, 6*time.Second), always(restart))
}

// restartDuringTermination restarts the component while sidecars terminate.
func restartDuringTermination(t *testing.T, component string) {
	t.Helper()
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.inWaves = true
	restart := f.restarts(component)
	f.plan(jobsOfWave)
	f.disturbEnds(component+" restarted during termination", exactly(4), restart)
}

// disturbEnds is like disturb, but injects the fault only while sidecars are terminating and no container is starting.
func (f *faultJobs) disturbEnds(scenario string, wanted amount, fault func()) {
	f.Helper()
	caught := 0
	f.disturb(scenario, wanted, every(time.Second), func() bool {
		terminating := 0
		f.SeenWithin(time.Minute, func(seen harness.Seen) error {
			if err := f.allFinished(seen); err == nil {
				return nil
			}
			if terminating = f.terminating(seen); terminating == 0 || f.starting(seen) {
				terminating = 0
				return fmt.Errorf("no sidecar is terminating, or a container is starting")
			}
			return nil
		})
		if terminating > 0 {
			fault()
		}
		caught += terminating
		return terminating > 0
	})
	f.Logf("%s: %d pods had a terminating sidecar", scenario, caught)
}

// starting reports whether the kubelet is starting a container: of a new pod, or with a swapped image.
func (f *faultJobs) starting(seen harness.Seen) bool {
	for _, record := range seen.AllPods() {
		if record.Deleted || record.Finished() {
			continue
		}
		main, sidecar := record.Container(harness.MainName), record.Container(harness.SidecarName)
		if main == nil || sidecar == nil || main.State.Terminated == nil || sidecar.State.Running == nil && sidecar.State.Terminated == nil {
			return true
		}
	}
	return false
}

// terminating counts the pods with an attempt and a running sidecar.
func (f *faultJobs) terminating(seen harness.Seen) int {
	count := 0
	for _, record := range seen.AllPods() {
		sidecar := record.Container(harness.SidecarName)
		if record.Deleted || sidecar == nil || sidecar.State.Running == nil {
			continue
		}
		if attempted(seen, record) {
			count++
		}
	}
	return count
}

// attempted reports whether the operator has made an attempt on the pod.
func attempted(seen harness.Seen, record *harness.PodRecord) bool {
	_, phase := record.Pod.Annotations[v1alpha1.AnnotationPodPhase]
	_, swap := record.Pod.Annotations[v1alpha1.AnnotationImageSwap]
	return phase || swap || len(seen.CRRs(record.Pod.Name)) > 0
}

// While kruise-manager is down, its webhooks reject new pods.
func TestFaultsKruiseDownAndUp(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	kruise := []string{kruiseManager, kruiseDaemon}
	for _, component := range kruise {
		f.RestoreWith("component", "start", component)
	}
	f.plan(60)
	f.disturb("kruise-manager and kruise-daemon down for 10 s and up", exactly(4), every(10*time.Second), func() bool {
		for _, component := range kruise {
			f.LocalCluster("component", "stop", component)
		}
		f.SeenWithin(10*time.Second, f.allFinished)
		for _, component := range kruise {
			f.LocalCluster("component", "start", component)
		}
		return true
	})
}

func TestFaultsContainerdRestarts(t *testing.T) {
	restartDuringTermination(t, containerd)
}

func TestFaultsNodeNotReady(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.inWaves = true
	f.RestoreWith("component", "start", kubelet)
	f.plan(jobsOfWave)
	f.disturbEnds("node NotReady during termination, then Ready", exactly(1), func() {
		f.LocalCluster("component", "stop", kubelet)
		f.waitForNode(corev1.ConditionUnknown)
		f.LocalCluster("component", "start", kubelet)
		f.waitForNode(corev1.ConditionTrue)
	})
}

func (f *faultJobs) waitForNode(ready corev1.ConditionStatus) {
	f.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: faultNode}}
	f.EventuallyGet(node, fmt.Sprintf("Ready of node %s to be %s", faultNode, ready), nodeTimeout, func() error {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == ready {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", node.Status.Conditions)
	})
}
