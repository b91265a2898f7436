// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

// stopStrays stops processes of the cluster whose records were lost, which someone
// causes who removes the cluster directory by hand.
func (c *Cluster) stopStrays(ctx context.Context, known []components.Component) error {
	err := stopMatching(ctx, 10*time.Second, func(arguments []string) bool { return c.isStray(arguments, known) })
	if err != nil {
		return fmt.Errorf("stop processes that were lost: %w", err)
	}
	return nil
}

// stopMatching stops the processes whose arguments satisfy the condition.
func stopMatching(ctx context.Context, grace time.Duration, condition func(arguments []string) bool) error {
	found, err := process.Find(condition)
	if err != nil {
		return err
	}
	for _, identity := range found {
		if err := process.Stop(ctx, identity, grace); err != nil {
			return err
		}
	}
	return nil
}

// isStray reports whether the arguments start a component that works in this cluster's
// directory.
func (c *Cluster) isStray(arguments []string, known []components.Component) bool {
	isComponent := slices.ContainsFunc(known, func(component components.Component) bool {
		return filepath.Base(component.Path) == filepath.Base(arguments[0])
	})
	return isComponent && slices.ContainsFunc(arguments[1:], func(argument string) bool {
		_, value, found := strings.Cut(argument, "=")
		return strings.HasPrefix(argument, "--") && found && strings.HasPrefix(value, c.layout.Root+string(filepath.Separator))
	})
}
