// SPDX-License-Identifier: Apache-2.0

package addons

// Kruise is the name of OpenKruise, and KruiseManager and KruiseDaemon those of its processes.
const (
	Kruise        = "kruise"
	KruiseManager = "kruise-manager"
	KruiseDaemon  = "kruise-daemon"
)

// kruiseFeatureGates leave out OpenKruise's own terminator of sidecars and all alpha features but jobs that pull images.
const kruiseFeatureGates = "AllAlpha=false,ImagePullJobGate=true,SidecarTerminator=false"

var _ = add(OpenKruise(""))

// OpenKruise returns OpenKruise at a version. Its daemon runs on the first node alone.
func OpenKruise(version string) Addon {
	const module = "github.com/openkruise/kruise"
	gates := "--feature-gates=" + kruiseFeatureGates
	return Addon{
		Name:      Kruise,
		Module:    module,
		Version:   version,
		Duration:  "3 minutes",
		Packages:  map[string]string{KruiseManager: module, KruiseDaemon: module + "/cmd/daemon"},
		Namespace: "kruise-system",
		Manifests: []string{"config/default"},
		Processes: []Process{
			{
				Name:    KruiseManager,
				Account: "kruise-manager",
				Arguments: []string{
					"--kubeconfig={kubeconfig}", "--enable-leader-election=false", "--enable-pprof=false",
					"--metrics-addr=127.0.0.1:21080", "--health-probe-addr=127.0.0.1:21081", gates,
				},
				Environment: []string{
					"POD_NAMESPACE=kruise-system", "WEBHOOK_HOST=127.0.0.1", "WEBHOOK_PORT=21443", "WEBHOOK_CERT_DIR={certificates}",
				},
				Health: "http://127.0.0.1:21081/readyz",
			},
			{
				Name:        KruiseDaemon,
				Account:     "kruise-daemon",
				Arguments:   []string{"--kubeconfig={kubeconfig}", "--addr=127.0.0.1:21221", "--enable-pprof=false", gates},
				Environment: []string{"NODE_NAME=node-1"},
				Health:      "http://127.0.0.1:21221/healthz",
			},
		},
		Sample: `apiVersion: apps.kruise.io/v1alpha1
kind: BroadcastJob
metadata: {generateName: webhook-check-, namespace: default}
spec:
  completionPolicy: {type: Always}
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: localhost/busybox:1}]}}
`,
	}
}
