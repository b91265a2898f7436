// SPDX-License-Identifier: Apache-2.0

// Command kubectl-sidecar_termination is the kubectl plugin: it explains what the operator does, and checks policies and installations.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/cli"
	"github.com/sidecar-termination/operator/cli/output"
)

func main() {
	err := cli.New().ExecuteContext(ctrl.SetupSignalHandler())
	os.Exit(output.Report(os.Stderr, err))
}
