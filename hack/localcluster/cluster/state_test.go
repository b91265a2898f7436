// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

func TestState(t *testing.T) {
	local := &Cluster{layout: layout.Layout{Root: t.TempDir()}}
	for _, test := range []struct {
		saved, want state
		release     string
	}{
		{state{Kubernetes: "v1.36.3", Complete: true}, state{Kubernetes: "v1.36.3", Complete: true}, "Kubernetes v1.36.3"},
		{state{Kubernetes: "v1.36.3", Kubelet: "slow"}, state{Kubernetes: "v1.36.3", Kubelet: "slow"}, "Kubernetes v1.36.3 with kubelet slow"},
		// Nothing can complete a cluster whose kubelet this version does not have.
		{state{Kubernetes: "v1.36.3", Kubelet: "unknown"}, state{}, "Kubernetes "},
	} {
		if err := local.saveState(test.saved); err != nil {
			t.Fatal(err)
		}
		got, err := local.loadState()
		if err != nil || got != test.want || got.release() != test.release {
			t.Errorf("%+v is loaded as %+v (%s), %v, want %+v (%s)", test.saved, got, got.release(), err, test.want, test.release)
		}
	}
}

func TestDescriptionHasTheKubelet(t *testing.T) {
	description := (&Cluster{}).description("v1.36.3", state{Kubelet: "slow"}.kubelet())
	if got := description.Kubelet; got.Version != "v1.36.3 (slow)" || got.Directory != "kubelet-slow-v1.36.3" {
		t.Errorf("the kubelet is %+v", got)
	}
	if got := description.Kubernetes; got.Version != "v1.36.3" || got.Directory != "kubernetes-v1.36.3" {
		t.Errorf("the other components are %+v", got)
	}
}
