// SPDX-License-Identifier: Apache-2.0

// Command virtualnode is a virtual node for end-to-end tests. It runs the controllers of
// virtual-kubelet with a provider that runs containers as processes. It needs root.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/log/klogv2"
)

// options are the flags of the command.
type options struct {
	node       string
	kubeconfig string
	images     string
	directory  string
	cgroup     string
	health     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	var o options
	pflag.StringVar(&o.node, "node", "virtual-1", "name of the node")
	pflag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file for the API server")
	pflag.StringVar(&o.images, "images", "", "directory with the archives of all images")
	pflag.StringVar(&o.directory, "directory", "", "directory for the file systems and the output of containers")
	pflag.StringVar(&o.cgroup, "cgroup", "", "existing control group of this node, in which all its processes run")
	pflag.StringVar(&o.health, "health-address", "127.0.0.1:0", "address that serves /healthz")
	pflag.Parse()
	log.L = klogv2.New(nil)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "virtualnode:", err)
		os.Exit(1)
	}
}
