// SPDX-License-Identifier: Apache-2.0

package components

import "fmt"

// Ports of the components that exist once, all on the loopback interface.
const (
	apiServerPort         = 6443
	etcdPort              = 21379
	etcdPeerPort          = 21380
	controllerManagerPort = 21257
	schedulerPort         = 21259
	kruiseWebhookPort     = 21443
	kruiseHealthPort      = 21081
	kruiseMetricsPort     = 21080
	kubeletPort           = 21250
	virtualNodeHealthPort = 21270
)

const (
	serviceRange = "10.96.0.0/16"
	// ServiceAddress is the first address of the service range. It belongs to the
	// service kubernetes.
	ServiceAddress = "10.96.0.1"
	dnsAddress     = "10.96.0.10"
	podRange       = "127.250.0.0/16"
)

// Bridge is the network interface that connects the pods.
const Bridge = "sidecar-br0"

// Server is the API server's URL.
func Server() string { return "https://" + loopback(apiServerPort) }

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
