// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// addressLabel marks the addresses on the loopback interface that belong to the cluster.
const addressLabel = "lo:sidecar"

// addAddresses gives the loopback interface the addresses of the nodes.
func addAddresses(ctx context.Context) error {
	for _, node := range nodes {
		if err := ip(ctx, "address", "replace", node.Address+"/32", "dev", "lo", "label", addressLabel); err != nil {
			return err
		}
	}
	return nil
}

// removeNetwork removes the addresses that addAddresses added, the bridge and all that
// is attached to it.
func removeNetwork(ctx context.Context) error {
	if err := ip(ctx, "address", "flush", "dev", "lo", "label", addressLabel); err != nil {
		return err
	}
	ports, err := filepath.Glob(filepath.Join("/sys/class/net", bridge, "brif", "*"))
	if err != nil {
		return fmt.Errorf("list the ports of the bridge: %w", err)
	}
	names := []string{bridge}
	for _, port := range ports {
		names = append(names, filepath.Base(port))
	}
	for _, name := range names {
		if err := removeInterface(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// removeInterface removes a network interface, which may vanish by itself meanwhile.
func removeInterface(ctx context.Context, name string) error {
	err := ip(ctx, "link", "delete", name)
	if _, missing := os.Stat(filepath.Join("/sys/class/net", name)); errors.Is(missing, os.ErrNotExist) {
		return nil
	}
	return err
}

func ip(ctx context.Context, arguments ...string) error {
	if output, err := exec.CommandContext(ctx, "ip", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("run ip %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
