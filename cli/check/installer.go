// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sidecar-termination/operator/internal/settings"
)

// Hints name commands that fit how the operator was installed: kubectl with the manifests of the release, or Helm.

// release returns the Helm release of the operator's Deployment, or nothing.
func (c *checker) release() string {
	if c.deployment == nil || c.deployment.Labels["app.kubernetes.io/managed-by"] != "Helm" {
		return ""
	}
	return cmp.Or(c.deployment.Labels["app.kubernetes.io/instance"], "RELEASE")
}

// apply returns the command that installs a file or directory of config: with kubectl, or by upgrading the Helm release with the values.
func (c *checker) apply(path string, values ...string) string {
	if c.release() != "" {
		return c.upgrade(values...)
	}
	return kubectl("apply --server-side", path)
}

// restore is apply for objects that exist. It replaces them, because applying keeps the fields that somebody else has added.
func (c *checker) restore(path string, values ...string) string {
	if c.release() != "" {
		return c.upgrade(values...) + " --force"
	}
	return kubectl("replace", path)
}

// reinstall returns how to install objects that a kustomization may rename, change or leave out.
func (c *checker) reinstall() string {
	if c.release() != "" {
		return c.upgrade()
	}
	return "apply the operator's manifests again, as you installed them"
}

// kubectl returns the command for a file or directory of config in this version.
func kubectl(verb, path string) string {
	if strings.HasSuffix(path, ".yaml") {
		return fmt.Sprintf("kubectl %s -f https://raw.githubusercontent.com/sidecar-termination/operator/%s/config/%s", verb, settings.SourceRef(), path)
	}
	return fmt.Sprintf("kubectl %s -k 'https://github.com/sidecar-termination/operator//config/%s?ref=%s'", verb, path, settings.SourceRef())
}

// upgrade returns the command that upgrades the Helm release with the values. It keeps the release's other values.
func (c *checker) upgrade(values ...string) string {
	command := fmt.Sprintf("helm upgrade %s CHART -n %s --reset-then-reuse-values", c.release(), c.deployment.Namespace)
	for _, value := range values {
		command += " --set " + value
	}
	return command
}

// set returns how to set a flag of the operator. The chart has some flags as values of their own, and the others in flags.
func (c *checker) set(flag string, values ...string) string {
	if c.release() == "" {
		return "set " + flag
	}
	if len(values) == 0 {
		values = []string{"flags." + strings.TrimPrefix(flag, "--")}
	}
	return c.upgrade(values...)
}
