// SPDX-License-Identifier: Apache-2.0

// Command sidecar-termination-operator ends sidecar containers once the main containers of a Job-type pod are done.
package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/internal/cli/exit"
	quickexitcommand "github.com/sidecar-termination/operator/internal/quickexit/command"
)

func main() {
	err := commandFor(os.Args[0]).ExecuteContext(ctrl.SetupSignalHandler())
	os.Exit(exit.Report(os.Stderr, err))
}

func newCommand() *cobra.Command {
	options := defaultOptions()
	command := &cobra.Command{
		Use:   "sidecar-termination-operator",
		Short: "Ends sidecar containers once the main containers of a Job-type pod are done",
		Long: `Runs the operator: it watches pods with restartPolicy Never or OnFailure, and ends the containers that a
SidecarTerminationPolicy or OpenKruise's environment variables declare as sidecars once every other regular
container is done, so that the pod, and the Job that waits for it, completes.`,
		Example: `  # on your machine, for the cluster of KUBECONFIG, where no other copy runs
  sidecar-termination-operator --leader-elect=false --quick-exit-image=registry.example/quick-exit:v1

  # is the operator in the cluster installed as it should be?
  sidecar-termination-operator check

  # the image that ends sidecars on virtual nodes
  sidecar-termination-operator quick-exit-image --push registry.example/quick-exit:v1`,
		Version:           version(),
		ValidArgsFunction: cobra.NoFileCompletions,
		SilenceUsage:      true,
		SilenceErrors:     true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), options)
		},
	}
	options.bind(command.Flags())
	command.AddCommand(quickexitcommand.New())
	command.AddCommand(lookingCommands(command.Name(), time.Now)...)
	return refuseUnknownCommands(command)
}
