// SPDX-License-Identifier: Apache-2.0

// Command sidecar-termination-operator ends sidecar containers once the main containers of a Job-type pod are done.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

func main() {
	if err := execute(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, run); err != nil {
		if !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "error:", safetext.EscapeLines(err.Error()))
		}
		os.Exit(1)
	}
}

const help = `Runs the operator: it watches pods with restartPolicy Never or OnFailure. Sidecars are the containers that a
SidecarTerminationPolicy or OpenKruise's environment variables declare. Once every other regular container is done, the
operator ends the sidecars, so that the pod and its Job complete.

Usage:
  ` + settings.Name + ` [flags]

Examples:
  # on your machine, for the cluster of KUBECONFIG, if no other replica runs there
  ` + settings.Name + ` --leader-elect=false --quick-exit-image=registry.example/quick-exit:v1

Flags:
`

// execute parses the arguments and runs the operator, unless they ask for the help or the version.
func execute(ctx context.Context, arguments []string, out io.Writer, run func(context.Context, settings.Operator) error) error {
	flags := pflag.NewFlagSet(settings.Name, pflag.ContinueOnError)
	flags.Usage = func() {}
	bound := settings.Bind(flags)
	version := flags.Bool("version", false, "print the version")
	err := flags.Parse(arguments)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, err = fmt.Fprint(out, help, flags.FlagUsagesWrapped(120))
		return err
	case err != nil:
		return fmt.Errorf("%w\nSee %q", err, settings.Name+" --help")
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q\nSee %q", flags.Arg(0), settings.Name+" --help")
	case *version:
		_, err = fmt.Fprintln(out, settings.Name, "version", settings.Version())
		return err
	}
	operator, err := bound.Operator()
	if err != nil {
		return err
	}
	return run(ctx, operator)
}
