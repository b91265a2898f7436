// SPDX-License-Identifier: Apache-2.0

package components

import (
	"github.com/sidecar-termination/operator/hack/localcluster/pki"
)

// Certificates returns the certificates that the components need as files, by the name
// of the file.
func (c Cluster) Certificates() map[string]pki.Holder {
	holders := map[string]pki.Holder{
		APIServer: {Name: APIServer, Hosts: []string{
			"127.0.0.1", ServiceAddress, "localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}},
		ControllerManager:          {Name: ControllerManager, Hosts: []string{"127.0.0.1", "localhost"}},
		Scheduler:                  {Name: Scheduler, Hosts: []string{"127.0.0.1", "localhost"}},
		"apiserver-kubelet-client": {Name: "apiserver-kubelet-client", Groups: []string{"system:masters"}},
		"service-accounts":         {Name: "service-accounts"},
	}
	for _, node := range c.Nodes {
		holders[kubeletUser(node)+"-serving"] = pki.Holder{Name: node.Name, Hosts: []string{node.Address, node.Name}}
	}
	return holders
}

// Users returns the clients of the API server that have a kubeconfig, by the name of
// the kubeconfig. Processes of
// addons act as their service accounts, with their rights.
func (c Cluster) Users() map[string]pki.Holder {
	users := map[string]pki.Holder{
		ControllerManager: {Name: "system:kube-controller-manager"},
		Scheduler:         {Name: "system:kube-scheduler"},
	}
	for _, node := range c.Nodes {
		users[kubeletUser(node)] = pki.Holder{Name: "system:node:" + node.Name, Groups: []string{"system:nodes"}}
	}
	for _, addon := range c.Addons {
		for _, process := range addon.Processes {
			users[process.Name] = pki.Holder{Name: process.Name, Groups: []string{"system:masters"}}
			if process.Account != "" {
				users[process.Name] = serviceAccount(addon.Namespace, process.Account)
			}
		}
	}
	return users
}

// Administrator is the user of the kubeconfig that people use.
func Administrator() pki.Holder {
	return pki.Holder{Name: "admin", Groups: []string{"system:masters"}}
}

func serviceAccount(namespace, name string) pki.Holder {
	return pki.Holder{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}
}
