// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strconv"

	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

func (d Description) etcd() Component {
	client, peer := "http://"+loopback(etcdPort), "http://"+loopback(etcdPeerPort)
	return d.built(toolchain.Etcd(), "etcd", Component{
		Arguments: []string{
			"--name=local",
			"--data-dir=" + d.Path("etcd"),
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

func (d Description) apiServer() Component {
	return d.built(toolchain.Kubernetes(d.Kubernetes), "kube-apiserver", Component{
		Arguments: []string{
			"--etcd-servers=http://" + loopback(etcdPort),
			"--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(apiServerPort),
			"--endpoint-reconciler-type=none",
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--token-auth-file=" + d.tokens(),
			"--tls-cert-file=" + d.servingCertificate(),
			"--tls-private-key-file=" + d.servingKey(),
			"--kubelet-certificate-authority=" + d.authority(),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-signing-key-file=" + d.servingKey(),
			"--service-account-key-file=" + d.servingKey(),
			"--service-cluster-ip-range=" + serviceRange,
			"--v=1",
		},
		Health: Probe{URL: server + "/readyz"},
	})
}

func (d Description) controllerManager() Component {
	return d.built(toolchain.Kubernetes(d.Kubernetes), "kube-controller-manager", Component{
		Arguments: []string{
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(controllerManagerPort),
			"--root-ca-file=" + d.authority(),
			"--service-account-private-key-file=" + d.servingKey(),
			"--use-service-account-credentials=true",
			"--leader-elect=false",
			"--kube-api-qps=200",
			"--kube-api-burst=400",
			"--v=1",
		},
		Health: Probe{URL: "https://" + loopback(controllerManagerPort) + "/healthz"},
		User:   User{Name: "system:kube-controller-manager"},
	})
}

func (d Description) scheduler() Component {
	return d.built(toolchain.Kubernetes(d.Kubernetes), "kube-scheduler", Component{
		Arguments: []string{
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(schedulerPort),
			"--leader-elect=false",
			"--kube-api-qps=200",
			"--kube-api-burst=400",
			"--v=1",
		},
		Health: Probe{URL: "https://" + loopback(schedulerPort) + "/healthz"},
		User:   User{Name: "system:kube-scheduler"},
	})
}
