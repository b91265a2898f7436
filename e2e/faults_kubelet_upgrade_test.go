//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/e2e/harness"
)

// kubeletVersionVariable is the variable of `make cluster-up` that chooses kubelets older than the API server.
const kubeletVersionVariable = "KUBELET_VERSION"

// The kubelets keep the new version, so no test may follow.
func TestFaultsKubeletUpgrade(t *testing.T) {
	skipUnlessAllFaults(t)
	if os.Getenv(kubeletVersionVariable) == "" {
		t.Skipf("set %s for the cluster and for this test (make test-e2e-faults)", kubeletVersionVariable)
	}
	harness.Last(t)
	f := newFaultJobs(t)
	server, err := f.Clientset.Discovery().ServerVersion()
	if err != nil {
		t.Fatalf("Get the version of the API server: %v", err)
	}
	before := f.kubeletVersion()
	if before == server.GitVersion {
		t.Fatalf("The kubelet has version %s already: bring up the cluster with an older %s", before, kubeletVersionVariable)
	}
	f.inWaves = true
	running := newGatedJobs(t, nil)
	f.plan(jobsOfWave)
	f.disturbEnds("kubelet upgraded from "+before+" to "+server.GitVersion+" during termination", exactly(1), func() {
		f.LocalCluster("up", "--kubelet-version="+server.GitVersion)
	})
	if after := f.kubeletVersion(); after != server.GitVersion {
		t.Errorf("The kubelet has version %s, want %s", after, server.GitVersion)
	}
	running.open()
	running.requireCompleted()
}

func (f *faultJobs) kubeletVersion() string {
	f.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: faultNode}}
	f.Get(node)
	return node.Status.NodeInfo.KubeletVersion
}

// gatedJobs are Jobs whose main containers run until they are opened, one of each policy. They have a namespace of their own.
type gatedJobs struct {
	*faultJobs
	gates []*harness.Gate
}

// newGatedJobs creates the Jobs, changed unless change is nil, and waits until all containers run.
func newGatedJobs(t *testing.T, change func(*batchv1.Job)) *gatedJobs {
	t.Helper()
	g := &gatedJobs{faultJobs: newFaultJobs(t)}
	for i, policy := range faultPolicies {
		job := harness.Job(jobName(i), corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(0))
		job.Spec.BackoffLimit = ptr.To[int32](0)
		job.Spec.Template.Labels = map[string]string{policyLabel: policy.name()}
		g.gates = append(g.gates, g.Gate(&job.Spec.Template))
		if change != nil {
			change(job)
		}
		g.Create(job)
	}
	for i := range g.gates {
		g.WaitForRunning(jobName(i))
	}
	return g
}

// open lets the main containers end.
func (g *gatedJobs) open() {
	g.Helper()
	for _, gate := range g.gates {
		gate.Open()
	}
}

// requireCompleted waits until the Jobs are Complete, and requires that each main container has run once.
func (g *gatedJobs) requireCompleted() {
	g.Helper()
	for i := range g.gates {
		g.RequireCompleted(jobName(i))
	}
}
