// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
)

func newComponentCommand(local *cluster.Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "component",
		Short: "Stop or start one process of the cluster",
		Long:  "Stop or start one process of the cluster: " + local.Names() + ".",
	}
	command.AddCommand(
		&cobra.Command{
			Use:   "start NAME",
			Short: "Start one process and wait until it is healthy",
			Args:  cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, arguments []string) error {
				return local.StartComponent(command.Context(), arguments[0])
			},
		},
		&cobra.Command{
			Use:   "stop NAME",
			Short: "Stop one process and wait until it is gone",
			Args:  cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, arguments []string) error {
				return local.StopComponent(command.Context(), arguments[0])
			},
		},
	)
	return command
}

func newKruiseCommand(local *cluster.Cluster) *cobra.Command {
	command := &cobra.Command{Use: "kruise", Short: "Install or remove OpenKruise on the running cluster"}
	command.AddCommand(
		&cobra.Command{
			Use:   "install",
			Short: "Install OpenKruise and wait until its webhooks serve",
			Args:  cobra.NoArgs,
			RunE:  func(command *cobra.Command, _ []string) error { return local.InstallKruise(command.Context()) },
		},
		&cobra.Command{
			Use:   "remove",
			Short: "Stop OpenKruise, remove its webhooks and definitions and wait until they are gone",
			Args:  cobra.NoArgs,
			RunE:  func(command *cobra.Command, _ []string) error { return local.RemoveKruise(command.Context()) },
		},
	)
	return command
}
