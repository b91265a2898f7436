// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/internal/cli/exit"
)

// refuseUnknownCommands has the root refuse a command that it does not have as what cannot be looked at: scripts take exit
// code 1 for a problem that was found.
func refuseUnknownCommands(root *cobra.Command) *cobra.Command {
	root.SuggestionsMinimumDistance = 2
	root.Args = func(_ *cobra.Command, arguments []string) error { return unknownCommand(root, arguments) }
	flagError := root.FlagErrorFunc()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// The root does not know the flags that were meant for the command.
		if unknown := unknownCommand(root, root.Flags().Args()); cmd == root && unknown != nil {
			return unknown
		}
		return flagError(cmd, err)
	})
	return root
}

// unknownCommand returns an error for arguments of the root itself, which takes none.
func unknownCommand(root *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return nil
	}
	meant := ""
	if suggestions := root.SuggestionsFor(arguments[0]); len(suggestions) > 0 {
		meant = "; did you mean " + strings.Join(suggestions, " or ") + "?"
	}
	return exit.CouldNotLook(fmt.Errorf("unknown command %q for %q%s\nSee %q", arguments[0], root.CommandPath(), meant, root.CommandPath()+" --help"))
}
