// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	argoModule  = "github.com/argoproj/argo-workflows/v3"
	argoImage   = "localhost/argoexec:v3.7.4"
	argoSignals = "workflow/executor/osspecific/"
	argoMain    = "cmd/workflow-controller/main.go"
)

// Argo makes the pods of workflows. Its programs in these pods need the API server, so a workflow must have hostNetwork: true.
var _ = add(Addon{
	Name:     "argo",
	Module:   argoModule,
	Version:  "v3.7.4",
	Duration: "10 minutes",
	Packages: map[string]string{
		"workflow-controller": argoModule + "/cmd/workflow-controller",
		"argoexec":            argoModule + "/cmd/argoexec",
	},
	LinkerFlags: "-X " + argoModule + ".version=v3.7.4",
	Changes: map[string]Change{
		// A symbolic link in the repository, which modules do not have.
		argoSignals + "signal_linux.go": {From: argoSignals + "signal_darwin.go"},
		// No option makes it listen on the loopback interface alone.
		argoMain: {Old: `":6060"`, New: `"127.0.0.1:6060"`},
	},
	Namespace:    "argo",
	SetNamespace: true,
	Manifests:    []string{"manifests/cluster-install"},
	Edit:         configureArgo,
	Processes: []Process{{
		Name:        "workflow-controller",
		Account:     "argo",
		Arguments:   []string{"--kubeconfig={kubeconfig}", "--namespace=argo", "--executor-image=" + argoImage},
		Environment: []string{"LEADER_ELECTION_DISABLE=true"},
		Health:      "http://127.0.0.1:6060/healthz",
	}},
	Images: []Image{{
		Reference:  argoImage,
		Programs:   map[string]string{"bin/argoexec": "argoexec"},
		Entrypoint: []string{"argoexec"},
	}},
})

// configureArgo tells the programs in pods where the API server is, and turns off the metrics.
func configureArgo(object *unstructured.Unstructured) {
	if object.GetKind() != "ConfigMap" || object.GetName() != "workflow-controller-configmap" {
		return
	}
	object.Object["data"] = map[string]any{
		"metricsConfig": "enabled: false\n",
		"executor": `env:
- {name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1}
- {name: KUBERNETES_SERVICE_PORT, value: "6443"}
`,
	}
}
