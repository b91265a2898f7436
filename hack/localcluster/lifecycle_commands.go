// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

const versionVariable = "K8S_VERSION"

func addVersionFlag(command *cobra.Command, version *string) {
	command.Flags().StringVar(version, "kubernetes-version", os.Getenv(versionVariable),
		"version of Kubernetes, with or without v; the default is $"+versionVariable+" or "+toolchain.DefaultKubernetes)
}

func newUpCommand(local *cluster.Cluster) *cobra.Command {
	var version string
	var withoutKruise bool
	command := &cobra.Command{
		Use:   "up",
		Short: "Bring the cluster up, or complete it, and wait until it is usable",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			kubernetes, err := toolchain.ParseKubernetes(version)
			if err != nil {
				return err
			}
			return local.Up(command.Context(), kubernetes, !withoutKruise)
		},
	}
	addVersionFlag(command, &version)
	command.Flags().BoolVar(&withoutKruise, "without-kruise", false, "do not install OpenKruise")
	return command
}

func newDownCommand(local *cluster.Cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the cluster, running or not, and restore the machine",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return local.Down(command.Context()) },
	}
}

func newStatusCommand(local *cluster.Cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the components and the nodes; fail when one of them is down",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			well, err := local.Status(command.Context(), command.OutOrStdout())
			if err == nil && !well {
				return errUnwell
			}
			return err
		},
	}
}

func newDeployCommand(local *cluster.Cluster) *cobra.Command {
	var overlay string
	command := &cobra.Command{
		Use:   "deploy",
		Short: "Build the operator, deploy it and wait until it is ready",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return local.Deploy(command.Context(), overlay) },
	}
	command.Flags().StringVar(&overlay, "overlay", cluster.DefaultOverlay, "kustomization to apply, relative to the repository")
	return command
}
