// SPDX-License-Identifier: Apache-2.0

package addons

// JobSet makes one Job for each replica of its replicated jobs.
var _ = add(Addon{
	Name:      "jobset",
	Module:    "sigs.k8s.io/jobset",
	Version:   "v0.11.0",
	Duration:  "2 minutes",
	Packages:  map[string]string{"jobset-controller": "sigs.k8s.io/jobset"},
	Namespace: "jobset-system",
	Manifests: []string{"config/default"},
	Processes: []Process{{
		Name:      "jobset-controller",
		Account:   "jobset-controller-manager",
		Arguments: []string{"--kubeconfig={kubeconfig}", "--config={config}", "--zap-log-level=2"},
		Config: `apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
webhook: {host: 127.0.0.1, port: 21510, certDir: "{certificates}"}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "127.0.0.1:21511"}
`,
		Webhook: Webhook{Service: "jobset-webhook-service", Port: 21510},
		Health:  "http://127.0.0.1:21511/readyz",
	}},
})
