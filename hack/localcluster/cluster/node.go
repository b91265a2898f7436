// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

//go:embed containerd.toml
var containerdTemplate string

// cgroup is the control group of the node's pods.
func (n Node) cgroup() string { return cgroupRoot + "/" + n.Name }

// containerdSocket is where the containerd of a node listens.
func (d Description) containerdSocket(node Node) string {
	return d.Node(node.Name, "containerd", "containerd.sock")
}

func (d Description) containerd(node Node) Component {
	configuration, network := d.Node(node.Name, "config", "containerd.toml"), d.Node(node.Name, "cni")
	path := func(name string) string { return d.Node(node.Name, "containerd", name) }
	return Component{
		Name:      containerdName + node.Suffix,
		Path:      "/usr/bin/containerd",
		Arguments: []string{"--config=" + configuration},
		Health:    Probe{Command: []string{"ctr", "--address", d.containerdSocket(node), "version"}},
		Files: map[string]string{
			configuration: strings.NewReplacer(
				"{root}", path("root"),
				"{state}", path("state"),
				"{socket}", d.containerdSocket(node),
				"{optional}", path("optional"),
				"{network}", network,
				"{runc}", path("runc"),
				"{pause}", images.PauseReference,
			).Replace(containerdTemplate),
			network + "/10-bridge.conflist": object{
				"cniVersion": "0.4.0",
				"name":       "local",
				"plugins": []object{{
					"type":      "bridge",
					"bridge":    bridge,
					"isGateway": true,
					"ipMasq":    false,
					"ipam": object{
						"type":    "host-local",
						"dataDir": d.Path("addresses"),
						"ranges":  [][]object{{{"subnet": podRange}}},
					},
				}},
			}.String(),
		},
	}
}

func (d Description) kubelet(node Node) Component {
	name := kubeletName + node.Suffix
	configuration, resolver := d.Node(node.Name, "config", "kubelet.yaml"), d.Node(node.Name, "config", "resolv.conf")
	return d.built(toolchain.Kubernetes(d.KubeletVersion), kubeletName, Component{
		Name: name,
		Arguments: []string{
			"--config=" + configuration,
			"--kubeconfig=" + d.Kubeconfig(name),
			"--hostname-override=" + node.Name,
			"--node-ip=" + node.Address,
			"--root-dir=" + d.Node(node.Name, "kubelet"),
			"--node-labels=" + node.Labels,
			"--v=2",
		},
		Health: Probe{URL: "http://" + loopback(node.HealthPort) + "/healthz"},
		User:   User{Name: "system:node:" + node.Name, Groups: []string{"system:nodes"}},
		Files:  map[string]string{configuration: d.kubeletSettings(node, resolver).String(), resolver: "nameserver 127.0.0.1\n"},
	})
}

func (d Description) kubeletSettings(node Node, resolver string) object {
	return object{
		"registerWithTaints": node.Taints,
		"apiVersion":         "kubelet.config.k8s.io/v1beta1",
		"kind":               "KubeletConfiguration",
		"address":            node.Address,
		"port":               kubeletPort,
		"healthzPort":        node.HealthPort,
		"tlsCertFile":        d.servingCertificate(),
		"tlsPrivateKeyFile":  d.servingKey(),
		// Only this machine reaches the kubelet, and who is on it can also write to etcd.
		"authentication":              object{"anonymous": object{"enabled": true}},
		"authorization":               object{"mode": "AlwaysAllow"},
		"containerRuntimeEndpoint":    "unix://" + d.containerdSocket(node),
		"cgroupRoot":                  node.cgroup(),
		"failSwapOn":                  false,
		"failCgroupV1":                false,
		"makeIPTablesUtilChains":      false,
		"clusterDomain":               "cluster.local",
		"clusterDNS":                  []string{dnsAddress},
		"resolvConf":                  resolver,
		"podLogsDir":                  d.Node(node.Name, "pod-logs"),
		"volumePluginDir":             d.Node(node.Name, "volume-plugins"),
		"maxPods":                     250,
		"serializeImagePulls":         false,
		"registryPullQPS":             0,
		"eventRecordQPS":              500, // kubelets before 1.37 take 0 as 5
		"eventBurst":                  1000,
		"kubeAPIQPS":                  200,
		"kubeAPIBurst":                400,
		"imageGCHighThresholdPercent": 100,
		// Images are loaded without a registry. If kubelet 1.35 or later has pulled an image with the same content under
		// another name, it also tries to pull the loaded one.
		"featureGates": object{"KubeletEnsureSecretPulledImages": false},
		"evictionHard": object{
			"memory.available":  "50Mi",
			"nodefs.available":  "1%",
			"nodefs.inodesFree": "1%",
			"imagefs.available": "1%",
		},
	}
}

// object is the content of a configuration file.
type object map[string]any

// String returns the object as JSON, which is also YAML.
func (o object) String() string {
	content, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		panic(err) // only for values that JSON does not have
	}
	return string(content) + "\n"
}
