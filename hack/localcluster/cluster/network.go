// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
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

// removeNetwork removes the addresses that addAddresses added, the bridge and all that is attached to it.
func removeNetwork(ctx context.Context) error {
	if err := ip(ctx, "address", "flush", "dev", "lo", "label", addressLabel); err != nil {
		return err
	}
	// Only a malformed pattern is an error.
	ports, _ := filepath.Glob(filepath.Join("/sys/class/net", bridge, "brif", "*"))
	for _, port := range append(ports, bridge) {
		name := filepath.Base(port)
		// An interface may vanish by itself meanwhile.
		if err := ip(ctx, "link", "delete", name); err != nil && exists(filepath.Join("/sys/class/net", name)) {
			return err
		}
	}
	return nil
}

func ip(ctx context.Context, arguments ...string) error {
	if output, err := exec.CommandContext(ctx, "ip", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("run ip %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
