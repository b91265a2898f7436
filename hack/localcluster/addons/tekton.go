// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// tektonImage has all programs that Tekton puts into pods.
const tektonImage = "localhost/tekton:v1.6.0"

// Tekton makes the pods of tasks.
var _ = add(Addon{
	Name:      "tekton",
	Module:    "github.com/tektoncd/pipeline",
	Version:   "v1.6.0",
	Duration:  "10 minutes",
	Packages:  tektonPackages(),
	Loopback:  true,
	Namespace: "tekton-pipelines",
	Manifests: []string{
		"config/100-namespace/*.yaml", "config/20*.yaml", "config/300-crds/*.yaml", "config/500-webhooks.yaml", "config/config-*.yaml",
		"config/webhook.yaml",
	},
	Edit: configureTekton,
	Processes: []Process{
		{
			Name:        "tekton-webhook",
			Account:     "tekton-pipelines-webhook",
			Arguments:   []string{"--kubeconfig={kubeconfig}"},
			Environment: tektonEnvironment("webhook", 21551, 21552, "WEBHOOK_PORT=21550"),
			Webhook:     Webhook{Service: "tekton-pipelines-webhook", Port: 21550, OwnCertificates: true},
			// No option changes 8080.
			Ports:  []int{21551, 21552, 8080},
			Health: "http://127.0.0.1:21551/readiness",
		},
		{
			Name:    "tekton-controller",
			Account: "tekton-pipelines-controller",
			Arguments: []string{
				"--kubeconfig={kubeconfig}", "--disable-ha",
				"--entrypoint-image=" + tektonImage, "--nop-image=" + tektonImage, "--sidecarlogresults-image=" + tektonImage,
				"--workingdirinit-image=" + tektonImage, "--shell-image=localhost/busybox:1", "--shell-image-win=localhost/busybox:1",
			},
			Environment: tektonEnvironment("controller", 21561, 21562),
			Ports:       []int{21561, 21562},
			Health:      "http://127.0.0.1:21561/readiness",
		},
	},
	Images: []Image{{
		Reference: tektonImage,
		Programs: map[string]string{
			"ko-app/entrypoint": "tekton-entrypoint", "ko-app/nop": "tekton-nop", "ko-app/workingdirinit": "tekton-workingdirinit",
			"ko-app/sidecarlogresults": "tekton-sidecarlogresults",
		},
		Entrypoint: []string{"/ko-app/nop"},
	}},
})

func tektonPackages() map[string]string {
	packages := map[string]string{}
	for _, name := range []string{"controller", "webhook", "entrypoint", "nop", "workingdirinit", "sidecarlogresults"} {
		packages["tekton-"+name] = "github.com/tektoncd/pipeline/cmd/" + name
	}
	return packages
}

// tektonEnvironment returns the variables of a program, as in the manifest of its Deployment.
func tektonEnvironment(program string, probesPort, profilingPort int, more ...string) []string {
	return append([]string{
		"SYSTEM_NAMESPACE=tekton-pipelines",
		"POD_NAME=" + program,
		"KUBERNETES_MIN_VERSION=v1.28.0",
		"CONFIG_DEFAULTS_NAME=config-defaults",
		"CONFIG_LOGGING_NAME=config-logging",
		"CONFIG_OBSERVABILITY_NAME=config-observability",
		"CONFIG_FEATURE_FLAGS_NAME=feature-flags",
		"CONFIG_LEADERELECTION_NAME=config-leader-election-" + program,
		"CONFIG_SPIRE=config-spire",
		"METRICS_DOMAIN=tekton.dev/pipeline",
		fmt.Sprintf("PROBES_PORT=%d", probesPort),
		fmt.Sprintf("PROFILING_PORT=%d", profilingPort),
	}, more...)
}

// configureTekton turns off the metrics.
func configureTekton(object *unstructured.Unstructured) {
	if object.GetKind() == "ConfigMap" && object.GetName() == "config-observability" {
		object.Object["data"] = map[string]any{"metrics.backend-destination": "none"}
	}
}
