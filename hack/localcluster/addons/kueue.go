// SPDX-License-Identifier: Apache-2.0

package addons

// Kueue admits Jobs, JobSets and plain pods by quota. It takes pods of namespaces whose objects name a queue.
var _ = add(Addon{
	Name:      "kueue",
	Module:    "sigs.k8s.io/kueue",
	Version:   "v0.15.0",
	Duration:  "4 minutes",
	Packages:  map[string]string{"kueue-controller": "sigs.k8s.io/kueue/cmd/kueue"},
	Namespace: "kueue-system",
	Manifests: []string{"config/default"},
	Processes: []Process{{
		Name:      "kueue-controller",
		Account:   "kueue-controller-manager",
		Arguments: []string{"--kubeconfig={kubeconfig}", "--config={config}", "--zap-log-level=2"},
		// The visibility server cannot be told which address to listen on.
		Config: `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: "127.0.0.1:21521"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: 21520, certDir: "{certificates}"}
leaderElection: {leaderElect: false}
internalCertManagement:
  enable: true
  webhookServiceName: kueue-webhook-service
  webhookSecretName: kueue-webhook-server-cert
featureGates: {VisibilityOnDemand: false}
integrations:
  frameworks: [batch/job, jobset.x-k8s.io/jobset, pod]
`,
		Webhook: Webhook{Service: "kueue-webhook-service", Port: 21520, OwnCertificates: true, Secret: "kueue-webhook-server-cert"},
		Health:  "http://127.0.0.1:21521/readyz",
	}},
})
