// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"
)

func TestMountsBelow(t *testing.T) {
	const table = `22 1 254:0 / /a rw - ext4 /dev/vda rw
30 22 0:40 / /repository/.cluster/a rw - tmpfs shm rw
31 22 0:41 / /repository/.cluster rw - tmpfs shm rw
32 22 0:42 / /repository/.cluster-other/a rw - tmpfs shm rw
33 30 0:43 / /repository/.cluster/a/with\040space rw - overlay none rw
`
	got := mountsBelow(table, "/repository/.cluster")
	if want := []string{"/repository/.cluster/a", "/repository/.cluster/a/with space"}; !slices.Equal(got, want) {
		t.Errorf("mounts are %q, want %q", got, want)
	}
}
