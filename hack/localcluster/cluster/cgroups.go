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

	"github.com/sidecar-termination/operator/hack/localcluster/components"
)

const cgroupMount = "/sys/fs/cgroup"

// hierarchies returns the control group hierarchies of the machine: one of version 2, or
// one for each controller of version 1.
func hierarchies() ([]string, error) {
	if exists(filepath.Join(cgroupMount, "cgroup.controllers")) {
		return []string{cgroupMount}, nil
	}
	files, err := filepath.Glob(filepath.Join(cgroupMount, "*", "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("list the control group hierarchies: %w", err)
	}
	found := make([]string, len(files))
	for i, file := range files {
		found[i] = filepath.Dir(file)
	}
	return found, nil
}

// makeCgroups makes control groups in every hierarchy.
func makeCgroups(groups []string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range all {
		for _, group := range groups {
			if err := makeCgroup(hierarchy, group); err != nil {
				return err
			}
		}
	}
	return nil
}

func makeCgroup(hierarchy, name string) error {
	directory := hierarchy
	for element := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if err := delegate(directory); err != nil {
			return err
		}
		parent := directory
		directory = filepath.Join(directory, element)
		if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the control group %s: %w", directory, err)
		}
		if err := inheritProcessors(parent, directory); err != nil {
			return err
		}
	}
	return nil
}

// delegate makes all controllers of a group of version 2 available to its children.
func delegate(directory string) error {
	controllers, err := os.ReadFile(filepath.Join(directory, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the controllers of %s: %w", directory, err)
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(directory, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("delegate %s below %s: %w", controller, directory, err)
		}
	}
	return nil
}

// inheritProcessors gives a new group of version 1 its parent's processors and memory
// nodes: without any it could hold no process.
func inheritProcessors(parent, directory string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			continue
		}
		inherited, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil || strings.TrimSpace(string(inherited)) == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(directory, name), inherited, 0o644); err != nil {
			return fmt.Errorf("set %s of %s: %w", name, directory, err)
		}
	}
	return nil
}

// killAll kills every process in the control groups of the cluster and waits until all are gone.
func killAll(ctx context.Context) error {
	return poll(ctx, 20*time.Second, func(context.Context) error {
		groups, err := clusterGroups()
		if err != nil {
			return err
		}
		if err := thaw(groups); err != nil {
			return err
		}
		left := processesIn(groups)
		for _, pid := range left {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%d processes are left", len(left))
		}
		return nil
	})
}

// thaw lets frozen processes go on. Those of version 1 cannot be killed: runc freezes a group while it sets its devices, and
// leaves it frozen when containerd ends it meanwhile.
func thaw(groups []string) error {
	for _, group := range groups {
		state := filepath.Join(group, "freezer.state")
		if _, err := os.Stat(state); err != nil {
			continue
		}
		if err := os.WriteFile(state, []byte("THAWED"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("thaw the control group %s: %w", group, err)
		}
	}
	return nil
}

// removeCgroups removes the control groups of the cluster, which hold no process any more.
func removeCgroups(ctx context.Context) error {
	return poll(ctx, 10*time.Second, func(context.Context) error {
		groups, err := clusterGroups()
		if err != nil {
			return err
		}
		var failures []error
		for _, group := range slices.Backward(groups) {
			if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failures = append(failures, fmt.Errorf("remove the control group %s: %w", group, err))
			}
		}
		return errors.Join(failures...)
	})
}

// clusterGroups returns the directories of all control groups of the cluster, parents first.
func clusterGroups() ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var groups []string
	for _, hierarchy := range all {
		root := filepath.Join(hierarchy, components.CgroupRoot)
		// Groups may vanish during the walk.
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
	}
	return groups, nil
}

func processesIn(groups []string) []int {
	var pids []int
	for _, group := range groups {
		content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
