// SPDX-License-Identifier: Apache-2.0

// Command kubectl-sidecar_termination is the kubectl plugin: it explains what the operator does, and checks policies and installations.
package main

import (
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/cli"
	"github.com/sidecar-termination/operator/cli/output"
)

func main() {
	// Libraries log for operators. Without a logger, a command that takes 30 seconds prints a stack trace.
	ctrl.SetLogger(logr.Discard())
	err := cli.New().ExecuteContext(ctrl.SetupSignalHandler())
	os.Exit(output.Report(os.Stderr, err))
}
