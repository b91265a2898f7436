// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strconv"

	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

func (c *Cluster) etcd() Component {
	client, peer := "http://"+loopback(etcdPort), "http://"+loopback(etcdPeerPort)
	return c.built(toolchain.Etcd(), "etcd", Component{
		Arguments: []string{
			"--name=local",
			"--data-dir=" + c.Path("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=local=" + peer,
			"--quota-backend-bytes=4294967296",
			"--auto-compaction-retention=5m",
			"--log-level=warn",
			// The data need not survive a power failure.
			"--unsafe-no-fsync",
		},
		Health: Probe{URL: client + "/health"},
	})
}

func (c *Cluster) apiServer() Component {
	return c.built(toolchain.Kubernetes(c.Kubernetes), "kube-apiserver", Component{
		Arguments: []string{
			"--etcd-servers=http://" + loopback(etcdPort),
			"--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(apiServerPort),
			"--endpoint-reconciler-type=none",
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--token-auth-file=" + c.tokens(),
			"--tls-cert-file=" + c.servingCertificate(),
			"--tls-private-key-file=" + c.servingKey(),
			"--kubelet-certificate-authority=" + c.authority(),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-signing-key-file=" + c.servingKey(),
			"--service-account-key-file=" + c.servingKey(),
			"--service-cluster-ip-range=" + serviceRange,
			"--v=1",
		},
		Health: Probe{URL: server + "/readyz"},
	})
}

func (c *Cluster) controllerManager() Component {
	return c.controller("kube-controller-manager", controllerManagerPort,
		"--root-ca-file="+c.authority(),
		"--service-account-private-key-file="+c.servingKey(),
		"--use-service-account-credentials=true",
	)
}

func (c *Cluster) scheduler() Component { return c.controller("kube-scheduler", schedulerPort) }

// controller returns a component of the control plane that is a user of the API server and serves only its health, at the port.
func (c *Cluster) controller(name string, port int, arguments ...string) Component {
	return c.built(toolchain.Kubernetes(c.Kubernetes), name, Component{
		Arguments: append(arguments,
			"--bind-address=127.0.0.1",
			"--secure-port="+strconv.Itoa(port),
			"--leader-elect=false",
			"--kube-api-qps=200",
			"--kube-api-burst=400",
			"--v=1",
		),
		Health: Probe{URL: "https://" + loopback(port) + "/healthz"},
		User:   User{Name: "system:" + name},
	})
}
