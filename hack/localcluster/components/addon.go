// SPDX-License-Identifier: Apache-2.0

package components

import (
	"path/filepath"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
	"github.com/sidecar-termination/operator/hack/localcluster/pki"
)

// Addon is a further controller, and the directory of its programs.
type Addon struct {
	addons.Addon
	Directory string
}

// Component returns the component that is a process of the addon.
func (c Cluster) Component(addon Addon, process addons.Process) Component {
	placeholders := c.placeholders(process)
	replaced := func(texts []string) []string {
		var replaced []string
		for _, text := range texts {
			replaced = append(replaced, placeholders.Replace(text))
		}
		return replaced
	}
	return Component{
		Name:        process.Name,
		Version:     addon.Version,
		Path:        filepath.Join(addon.Directory, process.BinaryName()),
		Arguments:   replaced(process.Arguments),
		Environment: replaced(process.Environment),
		Health:      Probe{URL: process.Health},
		Addon:       addon.Name,
	}
}

func (c Cluster) placeholders(process addons.Process) *strings.Replacer {
	return strings.NewReplacer(
		"{kubeconfig}", c.Kubeconfig(process.Name),
		"{config}", c.addonConfiguration(process),
		"{certificates}", c.WebhookCertificates(process),
		"{cluster}", c.Root,
	)
}

func (c Cluster) addonConfiguration(process addons.Process) string {
	return c.Path("addons", process.Name, "config.yaml")
}

// WebhookCertificates is the directory with the certificate of a process's webhooks.
func (c Cluster) WebhookCertificates(process addons.Process) string {
	return c.Path("addons", process.Name, "certificates")
}

// WebhookHolders returns the holders of certificates that the cluster's authority signs for webhooks, by their directory.
func (c Cluster) WebhookHolders() map[string]pki.Holder {
	holders := map[string]pki.Holder{}
	for _, addon := range c.Addons {
		for _, process := range addon.Processes {
			if hook := process.Webhook; hook.Service != "" && !hook.OwnCertificates {
				host := hook.Service + "." + addon.Namespace + ".svc"
				holders[c.WebhookCertificates(process)] = pki.Holder{Name: host, Hosts: []string{host}}
			}
		}
	}
	return holders
}
