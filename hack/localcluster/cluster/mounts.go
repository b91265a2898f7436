// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// unmountBelow unmounts everything below the directory, the newest mounts first.
func unmountBelow(directory string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list the mounts: %w", err)
	}
	for _, mount := range slices.Backward(mountsBelow(string(table), directory)) {
		err := syscall.Unmount(mount, 0)
		if errors.Is(err, syscall.EBUSY) {
			err = syscall.Unmount(mount, syscall.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("unmount %s: %w", mount, err)
		}
	}
	return nil
}

// requireNoMounts fails when something is mounted below the directory: removing the
// directory would remove the content of the mount.
func requireNoMounts(directory string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list the mounts: %w", err)
	}
	if mounts := mountsBelow(string(table), directory); len(mounts) > 0 {
		return fmt.Errorf("%s is still mounted", mounts[0])
	}
	return nil
}

// mountsBelow returns the mount points below the directory out of a mount table in the
// format of /proc/self/mountinfo, in its order.
func mountsBelow(table, directory string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape.Replace(fields[4]); strings.HasPrefix(point, directory+"/") {
			mounts = append(mounts, point)
		}
	}
	return mounts
}
