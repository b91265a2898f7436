// SPDX-License-Identifier: Apache-2.0

package components

import (
	"path/filepath"
	"strconv"
)

func (c Cluster) etcd() Component {
	client, peer := "http://"+loopback(etcdPort), "http://"+loopback(etcdPeerPort)
	return Component{
		Name:    Etcd,
		Version: c.Etcd.Version,
		Path:    filepath.Join(c.Etcd.Directory, Etcd),
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
	}
}

func (c Cluster) apiServer() Component {
	return Component{
		Name:    APIServer,
		Version: c.Kubernetes.Version,
		Path:    filepath.Join(c.Kubernetes.Directory, APIServer),
		Arguments: []string{
			"--etcd-servers=http://" + loopback(etcdPort),
			"--bind-address=127.0.0.1",
			"--advertise-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(apiServerPort),
			"--endpoint-reconciler-type=none",
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--client-ca-file=" + c.Certificate("ca"),
			// Nothing has a certificate with this name; components complain without the setting.
			"--requestheader-client-ca-file=" + c.Certificate("ca"),
			"--requestheader-allowed-names=front-proxy",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--tls-cert-file=" + c.Certificate(APIServer),
			"--tls-private-key-file=" + c.Key(APIServer),
			"--kubelet-certificate-authority=" + c.Certificate("ca"),
			"--kubelet-client-certificate=" + c.Certificate("apiserver-kubelet-client"),
			"--kubelet-client-key=" + c.Key("apiserver-kubelet-client"),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-signing-key-file=" + c.Key("service-accounts"),
			"--service-account-key-file=" + c.Certificate("service-accounts"),
			"--service-cluster-ip-range=" + serviceRange,
			"--v=1",
		},
		Health: Probe{URL: Server() + "/readyz"},
	}
}

func (c Cluster) controllerManager() Component {
	kubeconfig := c.Kubeconfig(ControllerManager)
	return Component{
		Name:    ControllerManager,
		Version: c.Kubernetes.Version,
		Path:    filepath.Join(c.Kubernetes.Directory, ControllerManager),
		Arguments: []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(controllerManagerPort),
			"--tls-cert-file=" + c.Certificate(ControllerManager),
			"--tls-private-key-file=" + c.Key(ControllerManager),
			"--client-ca-file=" + c.Certificate("ca"),
			"--root-ca-file=" + c.Certificate("ca"),
			"--cluster-signing-cert-file=" + c.Certificate("ca"),
			"--cluster-signing-key-file=" + c.Key("ca"),
			"--service-account-private-key-file=" + c.Key("service-accounts"),
			"--use-service-account-credentials=true",
			"--leader-elect=false",
			"--kube-api-qps=200",
			"--kube-api-burst=400",
			"--v=1",
		},
		Health: Probe{URL: "https://" + loopback(controllerManagerPort) + "/healthz"},
	}
}

func (c Cluster) scheduler() Component {
	kubeconfig := c.Kubeconfig(Scheduler)
	return Component{
		Name:    Scheduler,
		Version: c.Kubernetes.Version,
		Path:    filepath.Join(c.Kubernetes.Directory, Scheduler),
		Arguments: []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(schedulerPort),
			"--tls-cert-file=" + c.Certificate(Scheduler),
			"--tls-private-key-file=" + c.Key(Scheduler),
			"--client-ca-file=" + c.Certificate("ca"),
			"--leader-elect=false",
			"--kube-api-qps=200",
			"--kube-api-burst=400",
			"--v=1",
		},
		Health: Probe{URL: "https://" + loopback(schedulerPort) + "/healthz"},
	}
}
