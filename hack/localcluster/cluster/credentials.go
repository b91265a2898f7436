// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"crypto/rand"
	"encoding/csv"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// writeCredentials makes one certificate for all servers, and a token with a kubeconfig for each user, unless they exist. They serve all
// addons, because a running cluster can gain some.
func (c *Cluster) writeCredentials() error {
	if exists(c.tokens()) {
		return nil
	}
	all := c.at(c.Versions)
	all.With = strings.Join(knownNames(), ",")
	hosts := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	for _, addon := range all.addons() {
		if addon.Webhook.Service != "" {
			hosts = append(hosts, addon.Webhook.Service+"."+addon.Namespace+".svc")
		}
	}
	addresses := []net.IP{net.ParseIP(serviceAddress)}
	for _, node := range nodes {
		addresses = append(addresses, net.ParseIP(node.Address))
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", addresses, hosts)
	if err != nil {
		return fmt.Errorf("make the certificate: %w", err)
	}
	_, authority := pem.Decode(certificate)
	if err := errors.Join(
		cert.WriteCert(c.servingCertificate(), certificate), cert.WriteCert(c.authority(), authority),
		keyutil.WriteKey(c.servingKey(), key),
	); err != nil {
		return fmt.Errorf("write the certificate: %w", err)
	}
	users := map[string]User{c.AdminKubeconfig(): administrator("admin")}
	for _, component := range all.All() {
		if component.User.Name != "" {
			users[c.Kubeconfig(component.Name)] = component.User
		}
	}
	table := &bytes.Buffer{}
	lines := csv.NewWriter(table)
	for file, user := range users {
		token := rand.Text()
		record := []string{token, user.Name, user.Name}
		if len(user.Groups) > 0 {
			record = append(record, strings.Join(user.Groups, ","))
		}
		if err := errors.Join(lines.Write(record), saveKubeconfig(file, authority, user.Name, token)); err != nil {
			return err
		}
	}
	lines.Flush()
	if err := keyutil.WriteKey(c.tokens(), table.Bytes()); err != nil {
		return fmt.Errorf("write the tokens: %w", err)
	}
	return nil
}

// saveKubeconfig writes a kubeconfig, readable by the owner only, that holds everything it needs.
func saveKubeconfig(file string, authority []byte, user, token string) error {
	const name = "local"
	configuration := clientcmdapi.NewConfig()
	configuration.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	configuration.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	configuration.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	configuration.CurrentContext = name
	if err := clientcmd.WriteToFile(*configuration, file); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return nil
}
