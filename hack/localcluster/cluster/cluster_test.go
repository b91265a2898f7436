// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

func TestState(t *testing.T) {
	local := &Cluster{Layout: layout.Layout{Repository: t.TempDir()}}
	known, err := Versions{With: "none"}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	unknown := known
	unknown.Kruise = "v0.0.0"
	for _, test := range []struct{ saved, want state }{
		{state{Versions: known, Complete: true}, state{Versions: known, Complete: true}},
		{state{Versions: unknown}, state{}},
	} {
		if err := saveJSON(local.State(), test.saved); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, local.loadState(), cmp.AllowUnexported(state{})); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
	}
}
