// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
)

func newComponentCommand(local *cluster.Cluster) *cobra.Command {
	command := &cobra.Command{
		Use:   "component",
		Short: "Start, stop, kill or restart one process of the cluster",
		Long:  "Start, stop, kill or restart one process of the cluster: " + local.Names() + ".",
	}
	for _, change := range []struct {
		use, short string
		run        func(context.Context, string) error
	}{
		{"start NAME", "Start one process and wait until it is healthy", local.StartComponent},
		{"stop NAME", "Stop one process and wait until it is gone", local.StopComponent},
		{"kill NAME", "Kill one process, as a crash would, and wait until it is gone", local.KillComponent},
		{"restart NAME", "Stop one process if it runs, start it and wait until it is healthy", local.RestartComponent},
	} {
		command.AddCommand(&cobra.Command{
			Use:   change.use,
			Short: change.short,
			Args:  cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, arguments []string) error {
				return change.run(command.Context(), arguments[0])
			},
		})
	}
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
