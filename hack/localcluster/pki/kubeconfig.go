// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	clusterName = "local"
	contextName = "local"
)

// SaveKubeconfig writes a kubeconfig, readable by the owner only, that holds everything
// it needs.
func SaveKubeconfig(file, server string, authority []byte, user string, client Pair) error {
	configuration := clientcmdapi.NewConfig()
	configuration.Clusters[clusterName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	configuration.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: client.Certificate, ClientKeyData: client.Key}
	configuration.Contexts[contextName] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: user}
	configuration.CurrentContext = contextName
	if err := clientcmd.WriteToFile(*configuration, file); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return nil
}
