// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

const cgroupMount = "/sys/fs/cgroup"

// controllerSource is the source of the mounts that mountControllers makes, by which unmountControllers knows them.
const controllerSource = "sidecar-termination-cluster"

// mountControllers mounts the controllers that a machine with control groups of version 1 has left in version 2, because crun works with
// controllers of one version only. Other machines have none, and no such file.
func mountControllers() error {
	unified := filepath.Join(cgroupMount, "unified")
	controllers, _ := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
	for _, controller := range strings.Fields(string(controllers)) {
		directory := filepath.Join(cgroupMount, controller)
		if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the mount point of a controller: %w", err)
		}
		if err := syscall.Mount(controllerSource, directory, "cgroup", 0, controller); err != nil {
			return fmt.Errorf("mount the controller %s, which no control group below %s may use: %w", controller, unified, err)
		}
	}
	return nil
}

// unmountControllers takes back what mountControllers did. The controllers have no control groups any more.
func unmountControllers() error {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return fmt.Errorf("list the mounts: %w", err)
	}
	for _, mount := range mounts {
		if mount.Source != controllerSource {
			continue
		}
		if err := errors.Join(syscall.Unmount(mount.MountPoint, 0), os.Remove(mount.MountPoint)); err != nil {
			return fmt.Errorf("unmount the controller at %s: %w", mount.MountPoint, err)
		}
	}
	return nil
}

// hierarchies returns the control group hierarchies of the machine: one of version 2, or one for each controller of version 1.
func hierarchies() []string {
	if exists(filepath.Join(cgroupMount, "cgroup.controllers")) {
		return []string{cgroupMount}
	}
	// Only a malformed pattern is an error.
	found, _ := filepath.Glob(filepath.Join(cgroupMount, "*", "cgroup.procs"))
	for i, file := range found {
		found[i] = filepath.Dir(file)
	}
	return found
}

// makeCgroups makes the control groups of the components and of the pods of each node, in every hierarchy.
func makeCgroups() error {
	if err := mountControllers(); err != nil {
		return err
	}
	groups := []string{cgroupRoot, cgroupSystem}
	for _, node := range nodes {
		groups = append(groups, node.cgroup())
	}
	for _, hierarchy := range hierarchies() {
		for _, group := range groups {
			directory := filepath.Join(hierarchy, group)
			if err := delegate(filepath.Dir(directory)); err != nil {
				return err
			}
			if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make the control group %s: %w", directory, err)
			}
		}
	}
	return nil
}

// delegate makes all controllers of a group of version 2 available to its children. Other groups have no such file.
func delegate(directory string) error {
	controllers, _ := os.ReadFile(filepath.Join(directory, "cgroup.controllers"))
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(directory, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("delegate %s below %s: %w", controller, directory, err)
		}
	}
	return nil
}

// killAll kills every process in the control groups of the cluster and waits until all are gone.
func killAll(ctx context.Context) error {
	return progress.Poll(ctx, pollInterval, 20*time.Second, func(context.Context) error {
		left := 0
		err := eachProcess(func(group string, pid int) error {
			left++
			if err := thaw(group); err != nil {
				return err
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
			return nil
		})
		if err == nil && left > 0 {
			err = errors.New("processes are left")
		}
		return err
	})
}

// eachProcess calls the function for every process in the control groups of the machine's cluster, until it fails.
func eachProcess(call func(group string, pid int) error) error {
	for _, group := range clusterGroups() {
		// Groups may vanish meanwhile.
		pids, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		for _, field := range strings.Fields(string(pids)) {
			// A process of another namespace has the number 0.
			pid, err := strconv.Atoi(field)
			if err != nil || pid <= 0 {
				continue
			}
			if err := call(group, pid); err != nil {
				return err
			}
		}
	}
	return nil
}

// thaw lets frozen processes go on. Those of version 1 cannot be killed: a runtime freezes a group while it sets its devices, and
// leaves it frozen when containerd ends it meanwhile.
func thaw(group string) error {
	state := filepath.Join(group, "freezer.state")
	if !exists(state) {
		return nil
	}
	if err := os.WriteFile(state, []byte("THAWED"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("thaw the control group %s: %w", group, err)
	}
	return nil
}

// removeCgroups removes the control groups of the cluster, which hold no process any more.
func removeCgroups(ctx context.Context) error {
	return progress.Poll(ctx, pollInterval, 10*time.Second, func(context.Context) error {
		var failures []error
		for _, group := range slices.Backward(clusterGroups()) {
			if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failures = append(failures, fmt.Errorf("remove the control group %s: %w", group, err))
			}
		}
		return errors.Join(failures...)
	})
}

// clusterGroups returns the directories of all control groups of the cluster, parents first.
func clusterGroups() []string {
	var groups []string
	for _, hierarchy := range hierarchies() {
		root := filepath.Join(hierarchy, cgroupRoot)
		// Groups may vanish during the walk.
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
	}
	return groups
}
