// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on a bare machine: plain processes on
// the loopback interface, whose files are all below one directory. It changes the machine
// outside that directory in few places, and Down restores them all: an address on the
// loopback interface for each node, a bridge, a control group, and a symbolic link at
// which OpenKruise's daemon looks for the container runtime.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// FeatureGatesVariable is the environment variable that replaces the feature gates of OpenKruise.
const FeatureGatesVariable = "KRUISE_FEATURE_GATES"

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
	gates := components.DefaultKruiseFeatureGates
	if own := os.Getenv(FeatureGatesVariable); own != "" {
		gates = own
	}
	build := func(tool toolchain.Tool) components.Build {
		return components.Build{Version: tool.Version(), Directory: c.builder.Directory(tool)}
	}
	var further []components.Addon
	for _, addon := range versions.Addons() {
		further = append(further, components.Addon{Addon: addon, Directory: c.builder.Directory(toolchain.Addon(addon))})
	}
	return components.Cluster{
		Layout:             c.layout,
		Kubernetes:         build(toolchain.Kubernetes(versions.Kubernetes)),
		Kubelet:            components.Build{Version: versions.KubeletVersion, Directory: c.builder.Directory(versions.KubeletTool())},
		Etcd:               build(toolchain.Etcd()),
		Kruise:             build(versions.KruiseTool()),
		VirtualNode:        build(toolchain.VirtualNode()),
		KruiseFeatureGates: gates,
		Nodes:              components.DefaultNodes(),
		Addons:             further,
	}
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

// poll calls the condition until it holds, and returns the condition's last error when
// it does not within the timeout.
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
