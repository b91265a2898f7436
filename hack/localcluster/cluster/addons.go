// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	_ "embed"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// serviceAccount is the user of a component that acts as a service account of its addon.
func serviceAccount(namespace, name string) User {
	return User{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}
}

// kruiseFeatureGates leave out OpenKruise's own terminator of sidecars and all alpha features but jobs that pull images.
const kruiseFeatureGates = "--feature-gates=AllAlpha=false,ImagePullJobGate=true,SidecarTerminator=false"

// broadcastJob is an object that the API server accepts once OpenKruise's webhooks serve.
//
//go:embed broadcastjob.json
var broadcastJob string

// openKruise runs OpenKruise's daemon on the first node alone.
func openKruise(c *Cluster) Addon {
	const namespace, manager = "kruise-system", "kruise-manager"
	sample := c.Path("addons", "broadcastjob.json")
	return Addon{
		Tool:      c.KruiseTool(),
		Namespace: namespace,
		Manifests: "config/default",
		Components: []Component{
			{
				Name: manager,
				Arguments: []string{
					"--enable-leader-election=false", "--enable-pprof=false", "--metrics-addr=127.0.0.1:21080",
					"--health-probe-addr=127.0.0.1:21081", kruiseFeatureGates,
				},
				Environment: []string{
					"POD_NAMESPACE=" + namespace, "WEBHOOK_HOST=127.0.0.1", "WEBHOOK_PORT=21443", "WEBHOOK_CERT_DIR=" + c.Path("addons", manager),
				},
				User: serviceAccount(namespace, "kruise-manager"),
				Health: Probe{Command: []string{
					c.Kubectl(), "--kubeconfig=" + c.AdminKubeconfig(), "create", "--filename=" + sample,
					"--raw=/apis/apps.kruise.io/v1alpha1/namespaces/default/broadcastjobs?dryRun=All",
				}},
				Files: map[string]string{sample: broadcastJob},
			},
			{
				Name:        "kruise-daemon",
				Arguments:   []string{"--addr=127.0.0.1:21221", "--enable-pprof=false", kruiseFeatureGates},
				Environment: []string{"NODE_NAME=" + nodes[0].Name},
				User:        serviceAccount(namespace, "kruise-daemon"),
				Health:      Probe{URL: "http://127.0.0.1:21221/healthz"},
			},
		},
	}
}

// virtualNodeName is the name of the node that no kubelet serves.
const virtualNodeName = "virtual-1"

// virtual runs the virtual node. The version is that of virtual-kubelet. The program may do what the node authorizer does not let a
// virtual kubelet do.
func virtual(c *Cluster) Addon {
	return Addon{
		Tool: toolchain.Tool{
			Name:      virtualNode + "-v1.13.0",
			Directory: "../../e2e/virtualnode",
			Duration:  "2 minutes",
			Packages:  map[string]string{virtualNode: "github.com/sidecar-termination/operator/e2e/virtualnode"},
		},
		Components: []Component{{
			Name: virtualNode,
			Arguments: []string{
				"--node=" + virtualNodeName, "--images=" + c.Path("images"), "--directory=" + c.Node(virtualNodeName, "pods"),
				"--health-address=127.0.0.1:21270",
			},
			User:   administrator(virtualNode),
			Health: Probe{URL: "http://127.0.0.1:21270/healthz"},
		}},
	}
}

// project is an addon of Kubernetes itself, named as its module: a controller that reads a configuration file, and serves webhooks at a port
// and its health at the next one. The configuration is what other projects do not have.
func project(c *Cluster, name string, port int, tool toolchain.Tool, configuration string) Addon {
	controller, namespace := name+"-controller", name+"-system"
	file := c.Path("addons", controller+".yaml")
	common := fmt.Sprintf(`kind: Configuration
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
webhook: {host: 127.0.0.1, port: %d, certDir: %q}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "127.0.0.1:%d"}
`, port, c.Path("pki"), port+1)
	tool.Source = "sigs.k8s.io/" + name
	return Addon{
		Tool:      tool,
		Namespace: namespace,
		Manifests: "config/default",
		Webhook:   Webhook{Service: name + "-webhook-service", Port: port},
		Components: []Component{{
			Name:      controller,
			Arguments: []string{"--config=" + file, "--zap-log-level=2"},
			User:      serviceAccount(namespace, controller+"-manager"),
			Health:    Probe{URL: "http://" + loopback(port+1) + "/readyz"},
			Files:     map[string]string{file: common + configuration},
		}},
	}
}

// jobset makes one Job for each replica of its replicated jobs. Its agent in pods, which needs the API server, restarts them in place: their
// containers all start again.
func jobset(c *Cluster) Addon {
	const module, version, agent = "sigs.k8s.io/jobset", "v0.11.0", "in-place-restart-agent"
	addon := project(c, "jobset", 21510, toolchain.Tool{
		Name: "jobset-" + version, Duration: "2 minutes",
		Packages: map[string]string{"jobset-controller": module, agent: module + "/cmd/" + agent},
	}, `apiVersion: config.jobset.x-k8s.io/v1alpha1
featureGates: {InPlaceRestart: true}
`)
	addon.Image, addon.Entrypoint = "localhost/"+agent+":"+version, agent
	return addon
}

// kueue admits Jobs, JobSets and plain pods by quota. It takes pods of namespaces whose objects name a queue.
func kueue(c *Cluster) Addon {
	// The visibility server cannot be told which address to listen on.
	const configuration = `apiVersion: config.kueue.x-k8s.io/v1beta2
namespace: kueue-system
featureGates: {VisibilityOnDemand: false}
integrations:
  frameworks: [batch/job, jobset.x-k8s.io/jobset, pod]
`
	return project(c, "kueue", 21520, toolchain.Tool{
		Name: "kueue-v0.15.0", Duration: "4 minutes", Packages: map[string]string{"kueue-controller": "sigs.k8s.io/kueue/cmd/kueue"},
		// No option says where the certificate of the metrics is, which nobody reads.
		Change: `grep -q '"/etc/kueue/metrics/certs"' cmd/kueue/main.go
sed -i 's|"/etc/kueue/metrics/certs"|cfg.Webhook.CertDir|' cmd/kueue/main.go`,
	}, configuration)
}

// argo makes the pods of workflows. Its programs in these pods need the API server, so a workflow must have hostNetwork: true.
func argo(*Cluster) Addon {
	const (
		module, version       = "github.com/argoproj/argo-workflows/v3", "v3.7.4"
		controller, namespace = "workflow-controller", "argo"
		image                 = "localhost/argoexec:" + version
	)
	return Addon{
		Tool: toolchain.Tool{
			Name:     "argo-" + version,
			Source:   module,
			Duration: "10 minutes",
			Packages: map[string]string{
				controller: module + "/cmd/workflow-controller",
				"argoexec": module + "/cmd/argoexec",
			},
			LinkerFlags: "-X " + module + ".version=" + version,
			// The first file is a symbolic link in the repository, which modules do not have. No option makes the controller listen on
			// the loopback interface alone.
			Change: `cp workflow/executor/osspecific/signal_darwin.go workflow/executor/osspecific/signal_linux.go
grep -q '":6060"' cmd/workflow-controller/main.go
sed -i 's/":6060"/"127.0.0.1:6060"/' cmd/workflow-controller/main.go`,
		},
		Namespace: namespace,
		Manifests: "manifests/cluster-install",
		Edit:      configureArgo,
		Components: []Component{{
			Name:        controller,
			Arguments:   []string{"--namespace=" + namespace, "--executor-image=" + image},
			Environment: []string{"LEADER_ELECTION_DISABLE=true"},
			User:        serviceAccount(namespace, "argo"),
			Health:      Probe{URL: "http://127.0.0.1:6060/healthz"},
		}},
		Image:      image,
		Entrypoint: "argoexec",
	}
}

// configureArgo tells the programs in pods where the API server is, and turns off the metrics.
func configureArgo(manifest *unstructured.Unstructured) {
	if manifest.GetKind() != "ConfigMap" || manifest.GetName() != "workflow-controller-configmap" {
		return
	}
	manifest.Object["data"] = map[string]any{
		"metricsConfig": "enabled: false\n",
		"executor": `env:
- {name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1}
- {name: KUBERNETES_SERVICE_PORT, value: "6443"}
`,
	}
}
