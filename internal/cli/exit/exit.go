// SPDX-License-Identifier: Apache-2.0

// Package exit holds the exit codes of the subcommands that look at things: 0 where all is well, 1 where a problem was
// found, and 2 where it was not possible to look. Scripts depend on them.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/internal/terminal"
)

// The exit codes.
const (
	CodeProblem      = 1
	CodeCouldNotLook = 2
)

// ErrProblem means that a problem was found and has been reported.
var ErrProblem = errors.New("a problem was found")

// lookError means that it was not possible to look.
type lookError struct{ error }

func (e lookError) Unwrap() error { return e.error }

// CouldNotLook marks an error as one of looking. It returns nil for nil, and ErrProblem as it is.
func CouldNotLook(err error) error {
	if err == nil || errors.Is(err, ErrProblem) {
		return err
	}
	return lookError{err}
}

// Report writes the error of a command, unless it has been reported, and returns the exit code.
func Report(w io.Writer, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrProblem):
		return CodeProblem
	}
	if !errors.Is(err, context.Canceled) {
		_, _ = fmt.Fprintln(w, "error:", terminal.EscapeLines(err.Error()))
	}
	if errors.As(err, &lookError{}) {
		return CodeCouldNotLook
	}
	return CodeProblem
}

// Wrap has every error of the command, that of its flags and arguments included, end with CodeCouldNotLook.
func Wrap(command *cobra.Command) *cobra.Command {
	run, args := command.RunE, command.Args
	command.RunE = func(cmd *cobra.Command, arguments []string) error { return CouldNotLook(run(cmd, arguments)) }
	command.Args = func(cmd *cobra.Command, arguments []string) error { return CouldNotLook(args(cmd, arguments)) }
	command.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return CouldNotLook(fmt.Errorf("%w\nSee %q", err, cmd.CommandPath()+" --help"))
	})
	return command
}
