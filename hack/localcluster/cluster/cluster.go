// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on a bare machine: plain processes on the loopback interface, whose files are all
// below one directory. It changes the machine outside that directory in few places, and Down restores them all: an address on the
// loopback interface for each node, control groups, and a symbolic link at which OpenKruise's daemon looks for the container runtime.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Cluster is the local cluster of one repository, which may be running or not. Its versions say what it consists of.
type Cluster struct {
	layout.Layout
	Versions
	// Builder builds the cluster's programs.
	Builder toolchain.Builder
}

// New returns the cluster of the layout's repository, without versions.
func New(directories layout.Layout) (*Cluster, error) {
	cache, err := layout.Cache()
	if err != nil {
		return nil, err
	}
	builder := toolchain.Builder{Modules: filepath.Join(directories.Repository, "hack", "tools"), Cache: cache}
	return &Cluster{Layout: directories, Builder: builder}, nil
}

// at returns the cluster at other versions.
func (c *Cluster) at(versions Versions) *Cluster {
	return &Cluster{Layout: c.Layout, Versions: versions, Builder: c.Builder}
}

// state is what a cluster was brought up with. The zero state stands for no cluster.
type state struct {
	Versions
	// Complete is set once everything is up. An incomplete cluster cannot be used.
	Complete bool `json:"complete"`
}

// loadState returns the state that was saved last. A missing or damaged file stands for no cluster, and so do versions that this program does
// not have, because it cannot complete such a cluster.
func (c *Cluster) loadState() state {
	var loaded state
	content, _ := os.ReadFile(c.State())
	if json.Unmarshal(content, &loaded) != nil {
		return state{}
	}
	if _, err := loaded.Parse(); err != nil {
		return state{}
	}
	return loaded
}

// saveJSON writes a value to a file.
func saveJSON(file string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(file), err)
	}
	return layout.WriteFile(file, content)
}

// current returns the cluster as it was brought up last.
func (c *Cluster) current() (*Cluster, error) {
	state := c.loadState()
	if state.Kubernetes == "" {
		return nil, errors.New("there is no cluster: run localcluster up")
	}
	return c.at(state.Versions), nil
}

// change calls the function with the cluster as it was brought up last, while no other command changes the cluster.
func (c *Cluster) change(change func(*Cluster) error) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	current, err := c.current()
	if err != nil {
		return err
	}
	return change(current)
}

// lockName is a file that stays when the cluster is removed: who waits for the lock holds it open.
const lockName = "lock"

// lock keeps commands that change the cluster apart.
func (c *Cluster) lock() (func(), error) { return layout.Lock(c.Path(lockName)) }

// claimFile names the directory of the one cluster that the machine may have: ports, addresses and control groups are the same for
// all.
const claimFile = "/run/sidecar-termination-cluster"

// lockMachine locks the cluster for a command that changes the machine. It fails unless the machine is free, or this cluster's. What a
// killed cluster of another directory left is removed.
func (c *Cluster) lockMachine(ctx context.Context) (unlock func(), err error) {
	if err := requireRoot(); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(claimFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which cluster the machine has: %w", err)
	}
	other := strings.TrimSpace(string(content))
	killed := &Cluster{Layout: layout.Layout{Repository: filepath.Dir(other)}}
	if other == "" || other == c.Root() || !exists(killed.State()) {
		return c.lock()
	}
	err = eachProcess(func(string, int) error {
		return fmt.Errorf("this machine has the cluster of %s: run localcluster down there first", killed.Repository)
	})
	if err != nil {
		return nil, err
	}
	if err := killed.tearDown(ctx); err != nil {
		return nil, err
	}
	return c.lock()
}

// pollInterval is the time between two looks at a condition.
const pollInterval = 200 * time.Millisecond
