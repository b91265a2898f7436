// SPDX-License-Identifier: Apache-2.0

package components_test

import (
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

func example(nodes ...components.Node) components.Cluster {
	var further []components.Addon
	for _, addon := range addons.Find(addons.Names(), "v1.8.3") {
		further = append(further, components.Addon{Addon: addon, Directory: "/cache/" + addon.Name})
	}
	return components.Cluster{
		Layout:     layout.Layout{Repository: "/repository", Root: "/repository/.cluster"},
		Kubernetes: components.Build{Version: "v1.36.3", Directory: "/cache/kubernetes"},
		Kubelet:    components.Build{Version: "v1.34.10", Directory: "/cache/kubelet"},
		Etcd:       components.Build{Directory: "/cache/etcd"},
		Nodes:      nodes,
		Addons:     further,
	}
}

var second = components.Node{Name: "node-2", Address: "198.51.100.3", HealthPort: 21448}

func TestAllStartsInOrder(t *testing.T) {
	var names []string
	for _, component := range example(components.DefaultNodes()...).All() {
		if component.Addon == "" {
			names = append(names, component.Name)
		}
	}
	want := []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
		"containerd", "kubelet", "containerd-fargate-1", "kubelet-fargate-1",
	}
	if !slices.Equal(names, want) {
		t.Errorf("components are %v, want %v", names, want)
	}
}

func TestComponentsAreComplete(t *testing.T) {
	for _, component := range example(append(components.DefaultNodes(), second)...).All() {
		if !strings.HasPrefix(component.Path, "/") {
			t.Errorf("%s has the path %q", component.Name, component.Path)
		}
		if (component.Health.URL == "") == (len(component.Health.Command) == 0) {
			t.Errorf("%s has not exactly one health check", component.Name)
		}
	}
}

// The node that looks like one of AWS Fargate gets only pods that want to get there.
func TestFargateNode(t *testing.T) {
	cluster := example(components.DefaultNodes()...)
	kubelet, _ := cluster.Named(cluster.ServerOf(components.FargateNodeName))
	if !slices.Contains(kubelet.Arguments, "--node-labels=eks.amazonaws.com/compute-type=fargate") {
		t.Errorf("its kubelet has the arguments %v", kubelet.Arguments)
	}
	files, err := cluster.Files()
	if err != nil {
		t.Fatal(err)
	}
	const taint = "registerWithTaints:\n- effect: NoSchedule\n  key: eks.amazonaws.com/compute-type\n  value: fargate\n"
	if content := files["/repository/.cluster/nodes/fargate-1/config/kubelet.yaml"]; !strings.Contains(content, taint) {
		t.Errorf("its kubelet's configuration is\n%s", content)
	}
}

func TestKubeletIsABuildOfItsOwn(t *testing.T) {
	cluster := example(components.DefaultNodes()...)
	for _, node := range cluster.Nodes {
		kubelet, _ := cluster.Named(cluster.ServerOf(node.Name))
		if kubelet.Path != "/cache/kubelet/kubelet" || kubelet.Version != "v1.34.10" {
			t.Errorf("%s is %s of version %s", kubelet.Name, kubelet.Path, kubelet.Version)
		}
	}
}

func TestEveryNodeIsServed(t *testing.T) {
	cluster := example(components.DefaultNodes()...)
	if names := cluster.NodeNames(); !slices.Equal(names, []string{"node-1", "fargate-1", "virtual-1"}) {
		t.Errorf("the nodes are %v", names)
	}
	for _, name := range cluster.NodeNames() {
		if _, known := cluster.Named(cluster.ServerOf(name)); !known {
			t.Errorf("nothing serves %s", name)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	names := map[string]bool{}
	for _, component := range example(append(components.DefaultNodes(), second)...).All() {
		if names[component.Name] {
			t.Errorf("two components are named %s", component.Name)
		}
		names[component.Name] = true
	}
	if !names["kubelet"] || !names["kubelet-node-2"] {
		t.Errorf("components are %v, want those of both nodes", names)
	}
}

func TestNothingListensForOtherMachines(t *testing.T) {
	address := regexp.MustCompile(`\b(\d+\.\d+\.\d+\.\d+):\d+|--(?:bind-address|node-ip)=([^ ]+)`)
	documentation := net.IPNet{IP: net.IPv4(198, 51, 100, 0), Mask: net.CIDRMask(24, 32)}
	for _, component := range example(components.DefaultNodes()...).All() {
		for _, match := range address.FindAllStringSubmatch(strings.Join(component.Arguments, " "), -1) {
			if host := net.ParseIP(match[1] + match[2]); !host.IsLoopback() && !documentation.Contains(host) {
				t.Errorf("%s has the argument %s", component.Name, match[0])
			}
		}
	}
}

// An addon's process acts as its service account, and finds its certificate and its settings in the cluster's directory.
func TestAddonProcess(t *testing.T) {
	process := addons.Process{
		Name: "robot", Account: "worker", Arguments: []string{"--kubeconfig={kubeconfig}", "--settings={config}"}, Environment: []string{"DIR={certificates}"},
		Config: "dir: {certificates}", Webhook: addons.Webhook{Service: "hooks", Port: 1}, Health: "http://127.0.0.1:2/",
	}
	cluster := example()
	cluster.Addons = []components.Addon{{
		Addon:     addons.Addon{Name: "robots", Version: "v1.2.3", Namespace: "robots-system", Processes: []addons.Process{process}},
		Directory: "/cache/robots",
	}}
	const directory = "/repository/.cluster/addons/robot/"
	want := components.Component{
		Name: "robot", Version: "v1.2.3", Path: "/cache/robots/robot", Addon: "robots",
		Arguments:   []string{"--kubeconfig=/repository/.cluster/kubeconfigs/robot", "--settings=" + directory + "config.yaml"},
		Environment: []string{"DIR=" + directory + "certificates"},
		Health:      components.Probe{URL: "http://127.0.0.1:2/"},
	}
	got, _ := cluster.Named("robot")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("component (-want +got):\n%s", diff)
	}
	if user := cluster.Users()["robot"]; user.Name != "system:serviceaccount:robots-system:worker" {
		t.Errorf("it acts as %s", user.Name)
	}
	if holder := cluster.WebhookHolders()[directory+"certificates"]; !slices.Equal(holder.Hosts, []string{"hooks.robots-system.svc"}) {
		t.Errorf("its certificate is for %v", holder.Hosts)
	}
	files, err := cluster.Files()
	if err != nil {
		t.Fatal(err)
	}
	if content := files[directory+"config.yaml"]; content != "dir: "+directory+"certificates" {
		t.Errorf("its settings are %q", content)
	}
}

func TestFilesStayInTheCluster(t *testing.T) {
	files, err := example(components.DefaultNodes()...).Files()
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range files {
		if !strings.HasPrefix(file, "/repository/.cluster/") {
			t.Errorf("%s is outside the cluster directory", file)
		}
		if content == "" || strings.Contains(content, "{root}") || strings.Contains(content, "{certificates}") {
			t.Errorf("%s is not rendered", file)
		}
	}
}

func TestFilesOfNodesDiffer(t *testing.T) {
	files, err := example(append(components.DefaultNodes(), second)...).Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config/kubelet.yaml", "config/containerd.toml"} {
		first, other := files["/repository/.cluster/nodes/node-1/"+name], files["/repository/.cluster/nodes/node-2/"+name]
		if first == "" || other == "" || first == other {
			t.Errorf("%s does not exist for each node, or is the same for both", name)
		}
	}
}

func TestContainerdKeepsEverythingInTheCluster(t *testing.T) {
	files, err := example(components.DefaultNodes()...).Files()
	if err != nil {
		t.Fatal(err)
	}
	content := files["/repository/.cluster/nodes/node-1/config/containerd.toml"]
	for _, want := range []string{
		`root = "/repository/.cluster/nodes/node-1/containerd/root"`,
		`state = "/repository/.cluster/nodes/node-1/containerd/state"`,
		`address = "/repository/.cluster/nodes/node-1/containerd/containerd.sock"`,
		`Root = "/repository/.cluster/nodes/node-1/containerd/runc"`,
		`restrict_oom_score_adj = true`,
		`sandbox_image = "localhost/pause:1"`,
	} {
		if !strings.Contains(content, want) {
			t.Errorf("the configuration lacks %s:\n%s", want, content)
		}
	}
}

func TestEveryKubeconfigOfAComponentHasAUser(t *testing.T) {
	cluster := example(components.DefaultNodes()...)
	users := cluster.Users()
	for _, component := range cluster.All() {
		for _, argument := range component.Arguments {
			file, found := strings.CutPrefix(argument, "--kubeconfig=/repository/.cluster/kubeconfigs/")
			if _, known := users[file]; found && !known {
				t.Errorf("%s uses the kubeconfig %s, which nobody has", component.Name, file)
			}
		}
	}
}
