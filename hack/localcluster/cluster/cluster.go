// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on a bare machine: plain processes on the loopback interface, whose files are all
// below one directory. It changes the machine outside that directory in few places, and Down restores them all: an address on the
// loopback interface for each node, a bridge, control groups, and a symbolic link at which OpenKruise's daemon looks for the
// container runtime.
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

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Cluster is the local cluster of one repository.
type Cluster struct {
	layout   layout.Layout
	builder  toolchain.Builder
	progress *progress.Reporter
}

// New returns the cluster of the layout's repository, which may be running or not.
func New(directories layout.Layout, reporter *progress.Reporter) (*Cluster, error) {
	cache, err := layout.Cache()
	if err != nil {
		return nil, err
	}
	return &Cluster{
		layout:   directories,
		progress: reporter,
		builder: toolchain.Builder{
			Modules:  filepath.Join(directories.Repository, "hack", "tools"),
			Cache:    cache,
			Progress: reporter,
		},
	}, nil
}

// Builder returns what builds the cluster's programs.
func (c *Cluster) Builder() toolchain.Builder { return c.builder }

// description returns the components of the cluster at these versions.
func (c *Cluster) description(versions toolchain.Versions) components.Cluster {
	build := func(tool toolchain.Tool) components.Build {
		return components.Build{Version: tool.Version(), Directory: c.builder.Directory(tool)}
	}
	description := components.Cluster{
		Layout:     c.layout,
		Kubernetes: build(toolchain.Kubernetes(versions.Kubernetes)),
		Kubelet:    build(versions.KubeletTool()),
		Etcd:       build(toolchain.Etcd()),
		Nodes:      components.DefaultNodes(),
	}
	for _, addon := range versions.Addons() {
		description.Addons = append(description.Addons, components.Addon{Addon: addon, Directory: c.builder.Directory(toolchain.Addon(addon))})
	}
	return description
}

// state is what a cluster was brought up with. The zero state stands for no cluster.
type state struct {
	toolchain.Versions
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

// current returns the description of the cluster that was brought up last.
func (c *Cluster) current() (components.Cluster, state, error) {
	state, err := c.loadState()
	if err != nil {
		return components.Cluster{}, state, err
	}
	if state.Kubernetes == "" {
		return components.Cluster{}, state, errors.New("there is no cluster: run localcluster up")
	}
	return c.description(state.Versions), state, nil
}

// lockName is a file that stays when the cluster is removed: who waits for the lock holds it open.
const lockName = "lock"

// lock keeps commands that change the cluster apart.
func (c *Cluster) lock() (func(), error) { return layout.Lock(c.layout.Path(lockName)) }

// claimFile names the directory of the one cluster that the machine may have: ports, addresses and control groups are the same for
// all.
const claimFile = "/run/sidecar-termination-cluster"

// claimant returns the directory of another cluster on this machine, or nothing. If somebody removed that directory by hand, nothing
// else can take the cluster down.
func (c *Cluster) claimant() (string, error) {
	content, err := os.ReadFile(claimFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read which cluster the machine has: %w", err)
	}
	directory := strings.TrimSpace(string(content))
	if directory == c.layout.Root || !exists((layout.Layout{Root: directory}).State()) {
		return "", nil
	}
	return directory, nil
}

// claim makes the machine this cluster's, unless it is another's.
func (c *Cluster) claim() error {
	other, err := c.claimant()
	if err != nil {
		return err
	}
	if other != "" {
		return fmt.Errorf("this machine has the cluster of %s: run localcluster down there first", filepath.Dir(other))
	}
	return layout.WriteFile(claimFile, []byte(c.layout.Root+"\n"))
}

// poll calls the condition until it holds, and returns the condition's last error when it does not within the timeout.
func poll(parent context.Context, timeout time.Duration, condition func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(parent, 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		err := condition(ctx)
		if final := (finalError{}); errors.As(err, &final) {
			return false, final.error
		}
		// A condition that was cut short says nothing about why it does not hold.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if wait.Interrupted(err) && parent.Err() == nil {
		return fmt.Errorf("not within %s: %w", timeout, last)
	}
	return err
}

// finalError ends a poll at once.
type finalError struct{ error }
