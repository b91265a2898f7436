// SPDX-License-Identifier: Apache-2.0

// Command localcluster runs a real Kubernetes cluster on a bare machine, for development
// and end-to-end tests: etcd, the control plane, a kubelet on containerd, and OpenKruise,
// all built from source and all on the loopback interface. It needs root, the Go toolchain
// and a Debian machine, and no container engine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

// errUnwell makes the command fail without a further message.
var errUnwell = errors.New("the cluster is not well")

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, errUnwell) {
		_, _ = fmt.Fprintln(os.Stderr, "localcluster:", err)
	}
	os.Exit(1)
}

func run(ctx context.Context) error {
	directories, err := layout.Find()
	if err != nil {
		return err
	}
	local, err := cluster.New(directories, progress.Stderr())
	if err != nil {
		return err
	}
	return newCommand(local).ExecuteContext(ctx)
}

func newCommand(local *cluster.Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:           "localcluster",
		Short:         "Run a real Kubernetes cluster on a bare machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.AddCommand(
		newUpCommand(local),
		newSimpleCommand("down", "Remove the cluster, running or not, and restore the machine", local.Down),
		newStatusCommand(local), newDeployCommand(local),
		newBuildCommand(local), newComponentCommand(local), newKruiseCommand(local),
	)
	return command
}
