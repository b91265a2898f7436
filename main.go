// SPDX-License-Identifier: Apache-2.0

// Command sidecar-termination-operator ends sidecar containers once the main containers of a Job-type pod are done.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/internal/cli"
	"github.com/sidecar-termination/operator/internal/cli/exit"
)

func main() {
	err := cli.New(os.Args, run).ExecuteContext(ctrl.SetupSignalHandler())
	os.Exit(exit.Report(os.Stderr, err))
}
