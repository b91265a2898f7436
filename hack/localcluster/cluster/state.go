// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sidecar-termination/operator/hack/localcluster/flock"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// state is what a cluster was brought up with. The zero state stands for no cluster.
type state struct {
	toolchain.Versions
	// Kruise is whether the cluster has OpenKruise now.
	Kruise bool `json:"kruise"`
	// Complete is set once everything is up. An incomplete cluster cannot be used.
	Complete bool `json:"complete"`
}

func (c *Cluster) loadState() (state, error) {
	content, err := os.ReadFile(c.layout.State())
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("read the cluster's state: %w", err)
	}
	var loaded state
	if json.Unmarshal(content, &loaded) != nil {
		return state{}, nil
	}
	// Nothing can complete a cluster of versions that this program does not have.
	if _, err := loaded.Parse(); err != nil {
		return state{}, nil
	}
	return loaded, nil
}

func (c *Cluster) saveState(saved state) error {
	content, err := json.Marshal(saved)
	if err != nil {
		return fmt.Errorf("encode the cluster's state: %w", err)
	}
	return layout.WriteFile(c.layout.State(), content)
}

// lockName is a file that stays when the cluster is removed: who waits for the lock holds it open.
const lockName = "lock"

// lock keeps commands that change the cluster apart.
func (c *Cluster) lock() (func(), error) { return flock.Lock(c.layout.Path(lockName)) }
