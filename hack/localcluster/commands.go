// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// newSimpleCommand returns a command without arguments.
func newSimpleCommand(use, short string, run func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Context()) },
	}
}

// addVersionFlags adds the flags that choose versions. Their defaults are those of the environment.
func addVersionFlags(command *cobra.Command) *toolchain.Versions {
	versions := toolchain.FromEnvironment()
	flags := command.Flags()
	flags.StringVar(&versions.Kubernetes, "kubernetes-version", versions.Kubernetes,
		"version of Kubernetes, with or without v; the default is $K8S_VERSION or "+toolchain.DefaultKubernetes)
	flags.StringVar(&versions.KubeletVersion, "kubelet-version", versions.KubeletVersion,
		"version of the kubelets; the default is $KUBELET_VERSION or the version of Kubernetes")
	flags.StringVar(&versions.Kruise, "kruise-version", versions.Kruise,
		"version of OpenKruise, or "+toolchain.WithoutKruise+"; the default is $KRUISE_VERSION or "+toolchain.DefaultKruise)
	flags.StringVar(&versions.With, "with", versions.With,
		"further controllers, separated by commas: "+strings.Join(addons.Names(), ", ")+", or "+addons.Every+"; the default is $WITH")
	return &versions
}

func newUpCommand(local *cluster.Cluster) *cobra.Command {
	var versions *toolchain.Versions
	command := newSimpleCommand("up", "Bring the cluster up, or complete it, and wait until it is usable", func(ctx context.Context) error {
		parsed, err := versions.Parse()
		if err != nil {
			return err
		}
		return local.Up(ctx, parsed)
	})
	versions = addVersionFlags(command)
	return command
}

func newStatusCommand(local *cluster.Cluster) *cobra.Command {
	return newSimpleCommand("status", "Show the components and the nodes; fail when one of them is down", func(ctx context.Context) error {
		well, err := local.Status(ctx, os.Stdout)
		if err == nil && !well {
			return errUnwell
		}
		return err
	})
}

func newDeployCommand(local *cluster.Cluster) *cobra.Command {
	var overlay string
	command := newSimpleCommand("deploy", "Build the operator, deploy it and wait until it is ready", func(ctx context.Context) error {
		return local.Deploy(ctx, overlay)
	})
	command.Flags().StringVar(&overlay, "overlay", cluster.DefaultOverlay, "kustomization to apply, relative to the repository")
	return command
}

func newBuildCommand(local *cluster.Cluster) *cobra.Command {
	var versions *toolchain.Versions
	var envtest bool
	command := newSimpleCommand("build", "Build the programs of the cluster into the cache and print where they are", func(ctx context.Context) error {
		parsed, err := versions.Parse()
		if err != nil {
			return err
		}
		if envtest {
			directory, err := local.Builder().EnsureEnvtest(ctx, parsed.Kubernetes)
			if err == nil {
				fmt.Println(directory)
			}
			return err
		}
		directories, err := local.Build(ctx, parsed, parsed.HasKruise())
		for _, directory := range directories {
			fmt.Println(directory)
		}
		return err
	})
	versions = addVersionFlags(command)
	command.Flags().BoolVar(&envtest, "envtest", false, "build only kube-apiserver, etcd and kubectl; the one directory printed serves as KUBEBUILDER_ASSETS")
	return command
}

func newComponentCommand(local *cluster.Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "component",
		Short: "Start, stop, kill or restart one process of the cluster",
		Long:  "Start, stop, kill or restart one process of the cluster: " + local.Names() + ".",
	}
	for _, one := range []struct {
		use, short string
		change     cluster.Change
	}{
		{"start NAME", "Start one process and wait until it is healthy", cluster.Change{Start: true}},
		{"stop NAME", "Stop one process and wait until it is gone", cluster.Change{Stop: true}},
		{"kill NAME", "Kill one process, as a crash would, and wait until it is gone", cluster.Change{Kill: true}},
		{"restart NAME", "Stop one process if it runs, start it and wait until it is healthy", cluster.Change{Stop: true, Start: true}},
	} {
		command.AddCommand(&cobra.Command{
			Use:   one.use,
			Short: one.short,
			Args:  cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, arguments []string) error {
				return local.ChangeComponent(command.Context(), arguments[0], one.change)
			},
		})
	}
	return command
}

func newKruiseCommand(local *cluster.Cluster) *cobra.Command {
	command := &cobra.Command{Use: "kruise", Short: "Install or remove OpenKruise on the running cluster"}
	command.AddCommand(
		newSimpleCommand("install", "Install OpenKruise and wait until its webhooks serve", local.InstallKruise),
		newSimpleCommand("remove", "Stop OpenKruise, remove its webhooks and definitions and wait until they are gone", local.RemoveKruise),
	)
	return command
}
