// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
)

// checkPorts fails when another process listens where the component wants to. Addresses
// that the machine does not have yet count as free.
func checkPorts(component components.Component) error {
	for _, address := range component.Listens {
		listener, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			continue
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			_, port, _ := net.SplitHostPort(address)
			return fmt.Errorf("port %s, which %s needs, is taken by another process", port, component.Name)
		}
		if err != nil {
			return fmt.Errorf("check %s for %s: %w", address, component.Name, err)
		}
		if err := listener.Close(); err != nil {
			return fmt.Errorf("release %s for %s: %w", address, component.Name, err)
		}
	}
	return nil
}
