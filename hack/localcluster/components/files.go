// SPDX-License-Identifier: Apache-2.0

package components

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
)

//go:embed containerd.toml
var containerdTemplate string

// Files returns the configuration files that the components read, by path.
func (c Cluster) Files() (map[string]string, error) {
	files := map[string]string{}
	for _, node := range c.Nodes {
		kubelet, err := yaml.Marshal(c.kubeletSettings(node))
		if err != nil {
			return nil, fmt.Errorf("render the kubelet's configuration: %w", err)
		}
		network, err := json.MarshalIndent(c.networkSettings(), "", "  ")
		if err != nil {
			return nil, fmt.Errorf("render the network's configuration: %w", err)
		}
		files[c.kubeletConfiguration(node)] = string(kubelet)
		files[c.networkConfiguration(node)] = string(network) + "\n"
		files[c.containerdConfiguration(node)] = c.containerdSettings(node)
		files[c.resolverConfiguration(node)] = "nameserver 127.0.0.1\n"
	}
	for _, addon := range c.Addons {
		for _, process := range addon.Processes {
			if process.Config != "" {
				files[c.addonConfiguration(process)] = c.placeholders(process).Replace(process.Config)
			}
		}
	}
	return files, nil
}

type settings map[string]any

func (c Cluster) kubeletSettings(node Node) settings {
	return settings{
		"registerWithTaints":          node.Taints,
		"apiVersion":                  "kubelet.config.k8s.io/v1beta1",
		"kind":                        "KubeletConfiguration",
		"address":                     node.Address,
		"port":                        kubeletPort,
		"healthzPort":                 node.HealthPort,
		"tlsCertFile":                 c.Certificate(kubeletUser(node) + "-serving"),
		"tlsPrivateKeyFile":           c.Key(kubeletUser(node) + "-serving"),
		"authentication":              settings{"x509": settings{"clientCAFile": c.Certificate("ca")}},
		"containerRuntimeEndpoint":    "unix://" + c.ContainerdSocket(node),
		"cgroupRoot":                  node.Cgroup(),
		"failSwapOn":                  false,
		"failCgroupV1":                false,
		"makeIPTablesUtilChains":      false,
		"clusterDomain":               "cluster.local",
		"clusterDNS":                  []string{dnsAddress},
		"resolvConf":                  c.resolverConfiguration(node),
		"podLogsDir":                  c.Node(node.Name, "pod-logs"),
		"volumePluginDir":             c.Node(node.Name, "volume-plugins"),
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
		"featureGates": settings{"KubeletEnsureSecretPulledImages": false},
		"evictionHard": settings{
			"memory.available":  "50Mi",
			"nodefs.available":  "1%",
			"nodefs.inodesFree": "1%",
			"imagefs.available": "1%",
		},
	}
}

func (c Cluster) resolverConfiguration(node Node) string {
	return c.Node(node.Name, "config", "resolv.conf")
}

func (c Cluster) networkSettings() settings {
	return settings{
		"cniVersion": "0.4.0",
		"name":       "local",
		"plugins": []settings{{
			"type":      "bridge",
			"bridge":    Bridge,
			"isGateway": true,
			"ipMasq":    false,
			"ipam": settings{
				"type":    "host-local",
				"dataDir": c.Path("addresses"),
				"ranges":  [][]settings{{{"subnet": podRange}}},
			},
		}},
	}
}

func (c Cluster) containerdSettings(node Node) string {
	path := func(elements ...string) string {
		return c.Node(node.Name, append([]string{"containerd"}, elements...)...)
	}
	return strings.NewReplacer(
		"{root}", path("root"),
		"{state}", path("state"),
		"{socket}", c.ContainerdSocket(node),
		"{optional}", path("optional"),
		"{network}", c.Node(node.Name, "cni"),
		"{runc}", path("runc"),
		"{pause}", images.PauseReference,
	).Replace(containerdTemplate)
}
