// SPDX-License-Identifier: Apache-2.0

package components

import (
	"path/filepath"
	"strconv"
)

const (
	// KruiseNamespace is where OpenKruise's own objects live.
	KruiseNamespace = "kruise-system"
	// DefaultKruiseFeatureGates leave out OpenKruise's own terminator of sidecars and all
	// alpha features but jobs that pull images.
	DefaultKruiseFeatureGates = "AllAlpha=false,ImagePullJobGate=true,SidecarTerminator=false"
)

func (c Cluster) kruiseManager() Component {
	return Component{
		Name:    KruiseManager,
		Version: c.Kruise.Version,
		Path:    filepath.Join(c.Kruise.Directory, KruiseManager),
		Arguments: []string{
			"--kubeconfig=" + c.Kubeconfig(KruiseManager),
			"--enable-leader-election=false",
			"--enable-pprof=false",
			"--metrics-addr=" + loopback(kruiseMetricsPort),
			"--health-probe-addr=" + loopback(kruiseHealthPort),
			"--feature-gates=" + c.KruiseFeatureGates,
		},
		Environment: []string{
			"POD_NAMESPACE=" + KruiseNamespace,
			"WEBHOOK_HOST=127.0.0.1",
			"WEBHOOK_PORT=" + strconv.Itoa(kruiseWebhookPort),
			"WEBHOOK_CERT_DIR=" + c.Path("kruise", "certificates"),
		},
		Listens: []string{loopback(kruiseWebhookPort), loopback(kruiseHealthPort), loopback(kruiseMetricsPort)},
		Health:  Probe{URL: "http://" + loopback(kruiseHealthPort) + "/readyz"},
		Kruise:  true,
	}
}

func (c Cluster) kruiseDaemon(node Node) Component {
	return Component{
		Name:    c.onNode(KruiseDaemon, node),
		Version: c.Kruise.Version,
		Path:    filepath.Join(c.Kruise.Directory, KruiseDaemon),
		Arguments: []string{
			"--kubeconfig=" + c.Kubeconfig(KruiseDaemon),
			"--addr=" + loopback(node.DaemonPort),
			"--enable-pprof=false",
			"--feature-gates=" + c.KruiseFeatureGates,
		},
		Environment: []string{"NODE_NAME=" + node.Name},
		Listens:     []string{loopback(node.DaemonPort)},
		Health:      Probe{URL: "http://" + loopback(node.DaemonPort) + "/healthz"},
		Kruise:      true,
	}
}
