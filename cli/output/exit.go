// SPDX-License-Identifier: Apache-2.0

package output

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/internal/safetext"
)

// The exit codes of the subcommands besides 0. Scripts depend on them.
const (
	CodeProblem = 1
	CodeError   = 2
)

// ErrProblem means that the command has reported a problem.
var ErrProblem = errors.New("a problem was found")

// commandError is an error of the command itself.
type commandError struct{ error }

func (e commandError) Unwrap() error { return e.error }

// CommandError marks an error of the command itself. It returns nil and ErrProblem unchanged.
func CommandError(err error) error {
	if err == nil || errors.Is(err, ErrProblem) {
		return err
	}
	return commandError{err}
}

// Report writes the error of a command, except ErrProblem, and returns the exit code.
func Report(w io.Writer, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrProblem):
		return CodeProblem
	}
	if !errors.Is(err, context.Canceled) {
		_, _ = fmt.Fprintln(w, "error:", safetext.EscapeLines(err.Error()))
	}
	if errors.As(err, &commandError{}) {
		return CodeError
	}
	return CodeProblem
}

// Wrap makes every error of the command, its flags and its arguments exit with CodeError.
func Wrap(command *cobra.Command) *cobra.Command {
	run, args := command.RunE, command.Args
	command.RunE = func(cmd *cobra.Command, arguments []string) error { return CommandError(run(cmd, arguments)) }
	command.Args = func(cmd *cobra.Command, arguments []string) error { return CommandError(args(cmd, arguments)) }
	command.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return CommandError(fmt.Errorf("%w\nSee %q", err, cmd.CommandPath()+" --help"))
	})
	return command
}
