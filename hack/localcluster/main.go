// SPDX-License-Identifier: Apache-2.0

// Command localcluster runs a real Kubernetes cluster on a bare machine, for development and end-to-end tests: etcd, the control
// plane, kubelets on containerd, and addons such as OpenKruise, all but containerd built from source and all on the loopback
// interface. It needs root, the Go toolchain and a Debian machine, and no container engine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

const usage = `usage: localcluster COMMAND
  up                 bring the cluster up, or complete it, and wait until it is usable
  down               remove the cluster, running or not, and restore the machine
  status             show the components and the nodes; fail when one of them is down
  deploy             build the operator, deploy it and wait until it is ready
  reinstall          apply again what deploy has applied, and wait until the operator is ready
  build --envtest    compile kube-apiserver, etcd and kubectl; the directory printed serves as KUBEBUILDER_ASSETS
  component start|stop|kill NAME
                     start, stop or kill one process of the cluster, and wait until it is healthy or gone
CONTRIBUTING.md lists the environment variables that choose versions and addons`

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "localcluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	directories, err := layout.Find()
	if err != nil {
		return err
	}
	local, err := cluster.New(directories)
	if err != nil {
		return err
	}
	switch strings.Join(arguments, " ") {
	case "up":
		return local.Up(ctx)
	case "down":
		return local.Down(ctx)
	case "status":
		return local.Status(ctx, os.Stdout)
	case "deploy":
		return local.Deploy(ctx)
	case "reinstall":
		return local.Reinstall(ctx)
	case "build --envtest":
		return build(ctx, local)
	}
	if len(arguments) == 3 && arguments[0] == "component" && slices.Contains([]string{"start", "stop", "kill"}, arguments[1]) {
		return local.ChangeComponent(ctx, arguments[1], arguments[2])
	}
	return errors.New(usage)
}

func build(ctx context.Context, local *cluster.Cluster) error {
	versions, err := cluster.FromEnvironment()
	if err != nil {
		return err
	}
	directory, err := local.Builder.EnsureEnvtest(ctx, versions.Kubernetes)
	if err == nil {
		fmt.Println(directory)
	}
	return err
}
