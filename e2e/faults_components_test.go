//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// nodeTimeout is for a node to be found missing, or to be back.
const nodeTimeout = 4 * time.Minute

// restarts returns a fault that stops components and starts them again, by SIGTERM and SIGKILL in turn. They run again when
// the test ends.
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

// The operator's lease may run out meanwhile: then it ends, and the kubelet starts it again, after a longer pause each time.
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
	restartBetweenRequestAndEnd(t, kubelet)
}

func TestFaultsKubeletRestartsWithoutSidecars(t *testing.T) {
	onlyWithAllFaults(t)
	restartWithoutSidecars(t, kubelet)
}

// It may leave frozen containers behind, which keep the node busy.
func TestFaultsContainerdRestartsWithoutSidecars(t *testing.T) {
	skipUnlessAllFaults(t)
	harness.Last(t)
	restartWithoutSidecars(t, containerd)
}

// restartWithoutSidecars is the control: it restarts the component at any time, while containers are being started as well,
// under Jobs of which the pods have one container. What such a restart does by itself, without sidecars and without the
// operator, is reported: main containers that ran again, Jobs that failed, and Jobs that never ended. That the faults came
// about, and that no pod left a terminal phase, is required.
func restartWithoutSidecars(t *testing.T, component string) {
	t.Helper()
	f := newFaultJobs(t)
	f.control = true
	restart := f.restarts(component)
	f.plan(60)
	f.disturb(component+" restarted at any time under Jobs of one container", exactly(8), between(2*time.Second, 6*time.Second), always(restart))
}

// restartBetweenRequestAndEnd restarts the component while sidecars end.
func restartBetweenRequestAndEnd(t *testing.T, component string) {
	t.Helper()
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.inWaves = true
	restart := f.restarts(component)
	f.plan(jobsOfWave)
	f.disturbEnds(component+" restarted between request and end", exactly(4), restart)
}

// disturbEnds is disturb that injects the fault only while sidecars have been asked to end and still run, and no container
// is being started.
func (f *faultJobs) disturbEnds(scenario string, wanted amount, fault func()) {
	f.Helper()
	caught := 0
	f.disturb(scenario, wanted, every(time.Second), func() bool {
		asked := 0
		f.SeenWithin(time.Minute, func(seen harness.Seen) error {
			if err := f.allFinished(seen); err == nil {
				return nil
			}
			if asked = f.askedToEnd(seen); asked == 0 || f.starting(seen) {
				asked = 0
				return fmt.Errorf("no sidecar has been asked to end, or a container is being started")
			}
			return nil
		})
		if asked > 0 {
			fault()
		}
		caught += asked
		return asked > 0
	})
	f.Logf("%s: %d pods had a sidecar that had been asked to end and still ran", scenario, caught)
}

// starting reports whether the kubelet has a container to start: the first of a pod, or that with the swapped image.
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

// askedToEnd counts the pods whose sidecar was asked to end and still runs.
func (f *faultJobs) askedToEnd(seen harness.Seen) int {
	count := 0
	for _, record := range seen.AllPods() {
		sidecar := record.Container(harness.SidecarName)
		if record.Deleted || sidecar == nil || sidecar.State.Running == nil {
			continue
		}
		_, phase := record.Pod.Annotations[v1alpha1.AnnotationPodPhase]
		_, swap := record.Pod.Annotations[v1alpha1.AnnotationImageSwap]
		if phase || swap || len(seen.Requests(record.Pod.Name)) > 0 {
			count++
		}
	}
	return count
}

// Kruise's manager and daemon are down and up in turn. While the manager is down its webhooks refuse new pods.
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
	restartBetweenRequestAndEnd(t, containerd)
}

// The kubelet is gone until the node is marked, and then comes back.
func TestFaultsNodeNotReady(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.inWaves = true
	f.RestoreWith("component", "start", kubelet)
	f.plan(jobsOfWave)
	f.disturbEnds("node NotReady between request and end, and Ready again", exactly(1), func() {
		f.LocalCluster("component", "stop", kubelet)
		f.waitForNode(corev1.ConditionUnknown)
		f.LocalCluster("component", "start", kubelet)
		f.waitForNode(corev1.ConditionTrue)
	})
}

func (f *faultJobs) waitForNode(ready corev1.ConditionStatus) {
	f.Helper()
	f.Eventually(fmt.Sprintf("Ready of node %s to be %s", faultNode, ready), nodeTimeout, func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := f.Client.Get(ctx, client.ObjectKey{Name: faultNode}, node); err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == ready {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", node.Status.Conditions)
	})
}
