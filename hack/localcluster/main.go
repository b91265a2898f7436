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
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

const usage = `usage: localcluster COMMAND
  up                 bring the cluster up, or complete it, and wait until it is usable
  down               remove the cluster, running or not, and restore the machine
  status             show the components and the nodes; fail when one of them is down
  deploy             build the operator, deploy it and wait until it is ready
  build              compile the programs of the cluster into the cache and print where they are
  build --envtest    compile only kube-apiserver, etcd and kubectl; the directory printed serves as KUBEBUILDER_ASSETS
  component start|stop|kill|restart NAME
                     start, stop, kill or restart one process of the cluster, and wait until it is healthy or gone
  kruise install     add OpenKruise to the running cluster and wait until its webhooks serve
  kruise remove      stop OpenKruise, and remove its webhooks and definitions
CONTRIBUTING.md lists the environment variables that choose versions and addons`

// errUnwell makes the command fail without a further message.
var errUnwell = errors.New("the cluster is not well")

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, errUnwell) {
		_, _ = fmt.Fprintln(os.Stderr, "localcluster:", err)
	}
	os.Exit(1)
}

func run(ctx context.Context, arguments []string) error {
	directories, err := layout.Find()
	if err != nil {
		return err
	}
	local, err := cluster.New(directories, progress.Stderr())
	if err != nil {
		return err
	}
	switch command := strings.Join(arguments, " "); command {
	case "up":
		return up(ctx, local)
	case "down":
		return local.Down(ctx)
	case "status":
		return status(ctx, local)
	case "deploy":
		return local.Deploy(ctx)
	case "build", "build --envtest":
		return build(ctx, local, command != "build")
	case "kruise install":
		return local.InstallKruise(ctx)
	case "kruise remove":
		return local.RemoveKruise(ctx)
	}
	changes := map[string]cluster.Change{"start": {Start: true}, "stop": {Stop: true}, "kill": {Kill: true}, "restart": {Stop: true, Start: true}}
	if len(arguments) == 3 && arguments[0] == "component" {
		if change, known := changes[arguments[1]]; known {
			return local.ChangeComponent(ctx, arguments[2], change)
		}
	}
	return errors.New(usage)
}

func up(ctx context.Context, local *cluster.Cluster) error {
	versions, err := toolchain.FromEnvironment().Parse()
	if err != nil {
		return err
	}
	return local.Up(ctx, versions)
}

func status(ctx context.Context, local *cluster.Cluster) error {
	well, err := local.Status(ctx, os.Stdout)
	if err == nil && !well {
		return errUnwell
	}
	return err
}

func build(ctx context.Context, local *cluster.Cluster, envtest bool) error {
	versions, err := toolchain.FromEnvironment().Parse()
	if err != nil {
		return err
	}
	var directories []string
	if envtest {
		directories = make([]string, 1)
		directories[0], err = local.Builder().EnsureEnvtest(ctx, versions.Kubernetes)
	} else {
		directories, err = local.Build(ctx, versions)
	}
	if err != nil {
		return err
	}
	for _, directory := range directories {
		fmt.Println(directory)
	}
	return nil
}
