// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

func TestState(t *testing.T) {
	local := &Cluster{layout: layout.Layout{Root: t.TempDir()}}
	known, err := toolchain.Versions{With: "none"}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	unknown := known
	unknown.Kruise = "v0.0.0"
	for _, test := range []struct{ saved, want state }{
		{state{Versions: known, Complete: true}, state{Versions: known, Complete: true}},
		{state{Versions: unknown}, state{}},
	} {
		if err := local.saveState(test.saved); err != nil {
			t.Fatal(err)
		}
		got, err := local.loadState()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(state{})); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
	}
}

func TestDescriptionHasTheVersions(t *testing.T) {
	description := (&Cluster{}).description(toolchain.Versions{Kubernetes: "v1.37.2", KubeletVersion: "v1.34.10", Kruise: "v1.9.1", With: "kruise"})
	want := map[string]components.Build{
		"Kubernetes": {Version: "v1.37.2", Directory: "kubernetes-v1.37.2"},
		"kubelet":    {Version: "v1.34.10", Directory: "kubernetes-v1.34.10"},
		"OpenKruise": {Version: "v1.9.1", Directory: "kruise-v1.9.1"},
	}
	got := map[string]components.Build{"Kubernetes": description.Kubernetes, "kubelet": description.Kubelet}
	for _, addon := range description.Addons {
		got["OpenKruise"] = components.Build{Version: addon.Version, Directory: addon.Directory}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("builds (-want +got):\n%s", diff)
	}
}
