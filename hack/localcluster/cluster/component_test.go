// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// everything describes a cluster with an older kubelet and all addons.
func everything(t *testing.T) *Cluster {
	t.Helper()
	versions, err := Versions{KubeletVersion: "v1.34.10", With: every}.Parse()
	if err != nil {
		t.Fatal(err)
	}
	return &Cluster{Layout: layout.Layout{Repository: "/repository"}, Versions: versions, Builder: toolchain.Builder{Cache: "/cache"}}
}

func TestComponentsAreComplete(t *testing.T) {
	cluster := everything(t)
	for _, component := range cluster.All() {
		if (component.Health.URL == "") == (len(component.Health.Command) == 0) {
			t.Errorf("%s has not exactly one health check", component.Name)
		}
		if component.Addon != "" && cluster.addon(component.Addon).Tool.Packages[component.Name] == "" {
			t.Errorf("%s is not built", component.Name)
		}
		kubeconfig := "--kubeconfig=/repository/.cluster/kubeconfigs/" + component.Name
		if slices.Contains(component.Arguments, kubeconfig) != (component.User.Name != "") {
			t.Errorf("%s has a kubeconfig or a user, want both or none", component.Name)
		}
		for file := range component.Files {
			if !strings.HasPrefix(file, "/repository/.cluster/") {
				t.Errorf("%s of %s is outside the cluster directory", file, component.Name)
			}
		}
		if want := "/cache/kubernetes-v1.34.10/kubelet"; strings.HasPrefix(component.Name, kubeletName) && (component.Path != want || component.Version != "v1.34.10") {
			t.Errorf("%s is %s of version %s, want %s", component.Name, component.Path, component.Version, want)
		}
	}
}

func TestNothingListensForOtherMachines(t *testing.T) {
	address := regexp.MustCompile(`\b(\d+\.\d+\.\d+\.\d+):\d+|--(?:bind-address|node-ip)=([^ ]+)`)
	documentation := net.IPNet{IP: net.IPv4(198, 51, 100, 0), Mask: net.CIDRMask(24, 32)}
	for _, component := range everything(t).All() {
		for _, match := range address.FindAllStringSubmatch(strings.Join(component.Arguments, " "), -1) {
			if host := net.ParseIP(match[1] + match[2]); !host.IsLoopback() && !documentation.Contains(host) {
				t.Errorf("%s has the argument %s", component.Name, match[0])
			}
		}
	}
}
