// SPDX-License-Identifier: Apache-2.0

package settings

const (
	// Name is the name of the program, its image and its component label, and the source of its events.
	Name = "sidecar-termination-operator"
	// EventAction is the action of events on pods.
	EventAction = "TerminateSidecars"
	// Namespace is where the manifests install the operator.
	Namespace = "sidecar-termination-system"
	// DeploymentName is the name of the operator's Deployment and of its ServiceAccount.
	DeploymentName = "sidecar-termination-controller-manager"
	// ContainerName is the name of the operator's container in its Deployment.
	ContainerName = "manager"
	// LeaseName is the name of the lease of leader election.
	LeaseName = Name + ".sidecartermination.dev"
)

const (
	// PluginProgram is the file name by which kubectl finds the plugin, and the source of its events.
	PluginProgram = "kubectl-sidecar_termination"
	// PluginName is what users type to run the plugin.
	PluginName = "kubectl sidecar-termination"
)

// QuickExitImage is the quick-exit image of this version.
const QuickExitImage = "ghcr.io/sidecar-termination/quick-exit:" + Release

// OldestMinor is the oldest tested minor version of Kubernetes 1.
const OldestMinor = 34

// InstalledArguments are the operator's arguments in config/default. A test compares them.
func InstalledArguments() []string {
	return []string{"--leader-elect", "--quick-exit-image=" + QuickExitImage}
}
