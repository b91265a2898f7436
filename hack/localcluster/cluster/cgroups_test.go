// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFrozenGroupsAreThawed(t *testing.T) {
	frozen, other := t.TempDir(), t.TempDir()
	state := filepath.Join(frozen, "freezer.state")
	if err := os.WriteFile(state, []byte("FROZEN\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A group may be of a hierarchy that freezes nothing, and may vanish meanwhile.
	for _, group := range []string{frozen, other, filepath.Join(other, "gone")} {
		if err := thaw(group); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(state); err != nil || string(got) != "THAWED" {
		t.Errorf("the group's state is %q (%v)", got, err)
	}
	if left, err := os.ReadDir(other); err != nil || len(left) > 0 {
		t.Errorf("a group that freezes nothing was written to: %v (%v)", left, err)
	}
}
