// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os/exec"
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

// removeAddresses removes the addresses that addAddresses added.
func removeAddresses(ctx context.Context) error {
	return ip(ctx, "address", "flush", "dev", "lo", "label", addressLabel)
}

func ip(ctx context.Context, arguments ...string) error {
	if output, err := exec.CommandContext(ctx, "ip", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("run ip %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
