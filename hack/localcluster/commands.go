// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/kubelets"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

const (
	versionVariable = "K8S_VERSION"
	kubeletVariable = "KUBELET"
)

// newSimpleCommand returns a command without arguments.
func newSimpleCommand(use, short string, run func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Context()) },
	}
}

func addVersionFlag(command *cobra.Command, version *string) {
	command.Flags().StringVar(version, "kubernetes-version", os.Getenv(versionVariable),
		"version of Kubernetes, with or without v; the default is $"+versionVariable+" or "+toolchain.DefaultKubernetes)
}

func addKubeletFlag(command *cobra.Command, name *string) {
	command.Flags().StringVar(name, "kubelet", os.Getenv(kubeletVariable),
		"kubelet that differs from the released one: "+strings.Join(kubelets.Names(), ", ")+"; the default is $"+kubeletVariable)
}

func newUpCommand(local *cluster.Cluster) *cobra.Command {
	var version, kubeletName string
	var withoutKruise bool
	command := newSimpleCommand("up", "Bring the cluster up, or complete it, and wait until it is usable", func(ctx context.Context) error {
		kubernetes, err := toolchain.ParseKubernetes(version)
		if err != nil {
			return err
		}
		kubelet, err := kubelets.Parse(kubeletName)
		if err != nil {
			return err
		}
		return local.Up(ctx, kubernetes, kubelet, !withoutKruise)
	})
	addVersionFlag(command, &version)
	addKubeletFlag(command, &kubeletName)
	command.Flags().BoolVar(&withoutKruise, "without-kruise", false, "do not install OpenKruise")
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
	var version, kubeletName string
	var envtest bool
	command := newSimpleCommand("build", "Build the programs of the cluster into the cache and print where they are", func(ctx context.Context) error {
		kubernetes, err := toolchain.ParseKubernetes(version)
		if err != nil {
			return err
		}
		kubelet, err := kubelets.Parse(kubeletName)
		if err != nil {
			return err
		}
		if envtest {
			directory, err := local.Builder().EnsureEnvtest(ctx, kubernetes)
			if err == nil {
				fmt.Println(directory)
			}
			return err
		}
		tools := []toolchain.Tool{toolchain.Kubernetes(kubernetes), toolchain.Etcd(), toolchain.Kruise(), toolchain.VirtualNode()}
		if len(kubelet.Edits) > 0 {
			tools = append(tools, toolchain.Kubelet(kubernetes, kubelet))
		}
		for _, tool := range tools {
			directory, err := local.Builder().Ensure(ctx, tool)
			if err != nil {
				return err
			}
			fmt.Println(directory)
		}
		return nil
	})
	addVersionFlag(command, &version)
	addKubeletFlag(command, &kubeletName)
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
