// SPDX-License-Identifier: Apache-2.0

// Command virtualnode is a virtual node for end-to-end tests: the controllers of virtual-kubelet with a provider that runs the
// containers of pods as processes, each in the unpacked file system of its image and in its own PID namespace. It behaves like a
// kubelet where the operator depends on it: restart policies, restarts after image changes, exit codes, unpullable images and
// graceful termination. It supports no users, volumes, pod networks, probes, lifecycle hooks or init containers. It needs root
// and tar.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/log/klogv2"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	name := flag.String("node", "virtual-1", "name of the node")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file for the API server")
	images := flag.String("images", "", "directory with the archives of all images")
	directory := flag.String("directory", "", "directory for the file systems and the output of containers")
	health := flag.String("health-address", "127.0.0.1:0", "address that serves HTTP once the node is ready")
	flag.Parse()
	log.L = klogv2.New(nil)
	processes := &provider{images: *images, directory: *directory, pods: map[cache.ObjectName]*sandbox{}}
	err := run(context.Background(), *name, *kubeconfig, *health, processes)
	fmt.Fprintln(os.Stderr, "virtualnode:", err)
	os.Exit(1)
}

// run serves the node until an error. The containers end with this process.
func run(ctx context.Context, name, kubeconfig, health string, processes *provider) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	pods, err := newPodController(ctx, client, name, processes)
	if err != nil {
		return err
	}
	nodes, err := newNodeController(client, newNode(name))
	if err != nil {
		return err
	}
	ended := make(chan error, 3)
	go func() { ended <- pods.Run(ctx, 16) }()
	go func() { ended <- nodes.Run(ctx) }()
	go func() {
		<-pods.Ready()
		<-nodes.Ready()
		ended <- http.ListenAndServe(health, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}()
	return <-ended
}
