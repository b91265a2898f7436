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
	"strings"
	"syscall"

	"github.com/prometheus/procfs"

	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

// Down removes the cluster, running or not, and restores the machine. Logs stay until the next Up.
func (c *Cluster) Down(ctx context.Context) error {
	unlock, err := c.lockMachine(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.tearDown(ctx); err != nil {
		return err
	}
	progress.Say("the cluster is down")
	return nil
}

// tearDown works in any state of the cluster: all that it removes may be missing. It kills whatever is in the cluster's control
// groups, also processes whose records were lost.
func (c *Cluster) tearDown(ctx context.Context) error {
	for _, step := range []func() error{
		func() error { return killAll(ctx) },
		func() error { return removeCgroups(ctx) },
		unmountControllers,
		func() error { return removeAddresses(ctx) },
		c.removeShimSockets,
		func() error { return unmountBelow(c.Root()) },
		c.unlinkSocket,
		c.removeTraces,
		c.removeFiles,
		func() error { return os.RemoveAll(claimFile) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("tear the cluster down: %w", err)
		}
	}
	return nil
}

func (c *Cluster) removeFiles() error {
	entries, err := os.ReadDir(c.Root())
	if err != nil {
		return fmt.Errorf("list the cluster directory: %w", err)
	}
	for _, entry := range entries {
		if slices.Contains([]string{lockName, "logs"}, entry.Name()) {
			continue
		}
		if err := os.RemoveAll(c.Path(entry.Name())); err != nil {
			return fmt.Errorf("empty the cluster directory: %w", err)
		}
	}
	return nil
}

// removeShimSockets removes the sockets of the processes between containerd and its containers, which lie outside the cluster
// directory.
func (c *Cluster) removeShimSockets() error {
	files, err := filepath.Glob(c.Node("*", "containerd", "state", "io.containerd.runtime.v2.task", "*", "*", "address"))
	if err != nil {
		return fmt.Errorf("list the shims' sockets: %w", err)
	}
	for _, file := range files {
		content, _ := os.ReadFile(file)
		if socket, found := strings.CutPrefix(strings.TrimSpace(string(content)), "unix:///run/containerd/s/"); found {
			if err := os.RemoveAll(filepath.Join("/run/containerd/s", filepath.Base(socket))); err != nil {
				return fmt.Errorf("remove a shim's socket: %w", err)
			}
		}
	}
	return nil
}

// unmountBelow unmounts everything below the directory, the newest mounts first. It fails if something is still mounted: removing the
// directory would remove the content of the mount.
func unmountBelow(directory string) error {
	for range 2 {
		table, err := procfs.GetMounts()
		if err != nil {
			return fmt.Errorf("list the mounts: %w", err)
		}
		mounts := mountsBelow(table, directory)
		if len(mounts) == 0 {
			return nil
		}
		for _, mount := range slices.Backward(mounts) {
			err := syscall.Unmount(mount, 0)
			if errors.Is(err, syscall.EBUSY) {
				err = syscall.Unmount(mount, syscall.MNT_DETACH)
			}
			if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
				return fmt.Errorf("unmount %s: %w", mount, err)
			}
		}
	}
	return fmt.Errorf("something is still mounted below %s", directory)
}

// mountsBelow returns the mount points below the directory out of a mount table, in its order.
func mountsBelow(table []*procfs.MountInfo, directory string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []string
	for _, mount := range table {
		if point := unescape.Replace(mount.MountPoint); strings.HasPrefix(point, directory+"/") {
			mounts = append(mounts, point)
		}
	}
	return mounts
}

// daemonDirectory is where OpenKruise's daemon looks for containerd's socket. It is a link to that of the first node.
const daemonDirectory = "/hostvarrun/containerd"

// unlinkSocket removes the link if it is this cluster's, and its directory if nothing else is in it.
func (c *Cluster) unlinkSocket() error {
	target, err := os.Readlink(daemonDirectory)
	if err != nil || !strings.HasPrefix(target, c.Root()+string(filepath.Separator)) {
		return nil
	}
	if err := os.Remove(daemonDirectory); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the link for OpenKruise's daemon: %w", err)
	}
	// Fails when someone else put something there, which is then kept.
	_ = os.Remove(filepath.Dir(daemonDirectory))
	return nil
}

// removeTraces removes what the kubelet and containerd noted about the cluster's containers outside the cluster directory, at paths that cannot
// be configured: links to logs, and results of network plugins, which name a network namespace, a file below that directory.
func (c *Cluster) removeTraces() error {
	for _, pattern := range []string{"/var/log/containers/*", "/var/lib/cni/results/*"} {
		// Only a malformed pattern is an error.
		traces, _ := filepath.Glob(pattern)
		for _, trace := range traces {
			named, err := os.Readlink(trace)
			if err != nil {
				content, _ := os.ReadFile(trace)
				named = string(content)
			}
			if !strings.Contains(named, c.Root()+string(filepath.Separator)) {
				continue
			}
			if err := os.RemoveAll(trace); err != nil {
				return fmt.Errorf("remove a trace of a container: %w", err)
			}
		}
	}
	return nil
}
