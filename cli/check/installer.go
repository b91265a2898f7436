// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/sidecar-termination/operator/internal/settings"
)

// installer is how the operator was installed, as far as hints depend on it. The zero value is a checkout and kubectl.
type installer struct {
	// release and namespace are those of a Helm release, or empty.
	release, namespace string
	// remote is true if the user may have no checkout: the program is the kubectl plugin.
	remote bool
}

// installerOf reads the labels of the operator's Deployment, which may be nil.
func installerOf(deployment *appsv1.Deployment, program string) installer {
	i := installer{remote: program == settings.PluginName}
	if deployment != nil && deployment.Labels["app.kubernetes.io/managed-by"] == "Helm" {
		i.release, i.namespace = cmp.Or(deployment.Labels["app.kubernetes.io/instance"], "RELEASE"), deployment.Namespace
	}
	return i
}

// apply returns the command that installs a directory of config: with kubectl, or by upgrading the Helm release with the values.
func (i installer) apply(directory string, values ...string) string {
	switch {
	case i.release != "":
		return i.upgrade(values...)
	case i.remote:
		return fmt.Sprintf("kubectl apply --server-side -k 'https://github.com/sidecar-termination/operator//config/%s?ref=%s'", directory, settings.Release)
	}
	return "kubectl apply --server-side -k config/" + directory
}

// upgrade returns the command that upgrades the Helm release with the values. It keeps the release's other values.
func (i installer) upgrade(values ...string) string {
	command := fmt.Sprintf("helm upgrade %s CHART -n %s --reset-then-reuse-values", i.release, i.namespace)
	for _, value := range values {
		command += " --set " + value
	}
	return command
}

// set returns how to set a flag of the operator. The chart has some flags as values of their own, and the others in flags.
func (i installer) set(flag string, values ...string) string {
	if i.release == "" {
		return "set " + flag
	}
	if len(values) == 0 {
		values = []string{"flags." + strings.TrimPrefix(flag, "--")}
	}
	return i.upgrade(values...)
}
