// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	"github.com/prometheus/procfs"
)

func TestMountsBelow(t *testing.T) {
	var table []*procfs.MountInfo
	for _, point := range []string{
		"/a", "/repository/.cluster/a", "/repository/.cluster", "/repository/.cluster-other/a", `/repository/.cluster/a/with\040space`,
	} {
		table = append(table, &procfs.MountInfo{MountPoint: point})
	}
	got := mountsBelow(table, "/repository/.cluster")
	if want := []string{"/repository/.cluster/a", "/repository/.cluster/a/with space"}; !slices.Equal(got, want) {
		t.Errorf("mounts are %q, want %q", got, want)
	}
}
