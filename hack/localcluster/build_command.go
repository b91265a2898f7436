// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

func newBuildCommand(local *cluster.Cluster) *cobra.Command {
	var version string
	var envtest bool
	command := &cobra.Command{
		Use:   "build",
		Short: "Build the programs of the cluster into the cache and print where they are",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			kubernetes, err := toolchain.ParseKubernetes(version)
			if err != nil {
				return err
			}
			if envtest {
				directory, err := local.Builder().EnsureEnvtest(command.Context(), kubernetes)
				return printDirectory(command, directory, err)
			}
			for _, tool := range []toolchain.Tool{toolchain.Kubernetes(kubernetes), toolchain.Etcd(), toolchain.Kruise(), toolchain.VirtualNode()} {
				directory, err := local.Builder().Ensure(command.Context(), tool)
				if err := printDirectory(command, directory, err); err != nil {
					return err
				}
			}
			return nil
		},
	}
	addVersionFlag(command, &version)
	command.Flags().BoolVar(&envtest, "envtest", false, "build only kube-apiserver, etcd and kubectl; the one directory printed serves as KUBEBUILDER_ASSETS")
	return command
}

func printDirectory(command *cobra.Command, directory string, err error) error {
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(command.OutOrStdout(), directory); err != nil {
		return fmt.Errorf("print the directory: %w", err)
	}
	return nil
}
