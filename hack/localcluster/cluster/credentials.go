// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/pki"
)

// writeCredentials makes the certificates and kubeconfigs that are missing for anything in
// the cluster.
func (c *Cluster) writeCredentials(description components.Cluster) error {
	authority, err := c.authority()
	if err != nil {
		return err
	}
	for name, holder := range description.Certificates() {
		if err := issue(authority, holder, c.layout.Certificate(name), c.layout.Key(name)); err != nil {
			return err
		}
	}
	for directory, holder := range description.WebhookHolders() {
		if err := issue(authority, holder, filepath.Join(directory, corev1.TLSCertKey), filepath.Join(directory, corev1.TLSPrivateKeyKey)); err != nil {
			return err
		}
	}
	kubeconfigs := map[string]pki.Holder{c.layout.AdminKubeconfig(): components.Administrator()}
	for name, holder := range description.Users() {
		kubeconfigs[c.layout.Kubeconfig(name)] = holder
	}
	for file, holder := range kubeconfigs {
		if exists(file) {
			continue
		}
		pair, err := authority.Issue(holder)
		if err != nil {
			return err
		}
		if err := pki.SaveKubeconfig(file, components.Server(), authority.Certificate, holder.Name, pair); err != nil {
			return err
		}
	}
	return nil
}

// issue saves a new certificate, unless there is one.
func issue(authority *pki.Authority, holder pki.Holder, certificate, key string) error {
	if exists(key) {
		return nil
	}
	pair, err := authority.Issue(holder)
	if err != nil {
		return err
	}
	return pair.Save(certificate, key)
}

// authority returns the cluster's authority, and makes it when there is none.
func (c *Cluster) authority() (*pki.Authority, error) {
	certificate, key := c.layout.Certificate("ca"), c.layout.Key("ca")
	if exists(key) {
		return pki.LoadAuthority(certificate, key)
	}
	authority, err := pki.NewAuthority("local-cluster")
	if err != nil {
		return nil, err
	}
	return authority, authority.Save(certificate, key)
}

// writeConfiguration writes the files that the components read.
func (c *Cluster) writeConfiguration(description components.Cluster) error {
	files, err := description.Files()
	if err != nil {
		return err
	}
	for file, content := range files {
		if err := layout.WriteFile(file, []byte(content)); err != nil {
			return err
		}
	}
	return c.linkKubectl(description)
}

// linkKubectl makes kubectl reachable at a path that does not depend on the version.
func (c *Cluster) linkKubectl(description components.Cluster) error {
	link, target := c.layout.Path("bin", "kubectl"), filepath.Join(description.Kubernetes.Directory, "kubectl")
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink(target, link)
}
