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
	strays, err := process.Find(func(arguments []string) bool { return c.isStray(arguments, known) })
	if err != nil {
		return err
	}
	for _, stray := range strays {
		if err := process.Stop(ctx, stray, 10*time.Second); err != nil {
			return fmt.Errorf("stop a process that was lost: %w", err)
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
