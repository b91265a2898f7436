// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/cli/output"
)

// rejectUnknownCommands makes the root end with exit code 2 for an unknown subcommand: scripts read 1 as a problem found.
func rejectUnknownCommands(root *cobra.Command) *cobra.Command {
	root.SuggestionsMinimumDistance = 2
	root.Args = func(_ *cobra.Command, arguments []string) error { return unknownCommand(root, arguments) }
	flagError := root.FlagErrorFunc()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// A flag that the root does not have may belong to a misspelled subcommand.
		if unknown := unknownCommand(root, root.Flags().Args()); cmd == root && unknown != nil {
			return unknown
		}
		return flagError(cmd, err)
	})
	return root
}

// unknownCommand returns an error for arguments of the root, which takes none itself.
func unknownCommand(root *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return nil
	}
	hint := ""
	if suggestions := root.SuggestionsFor(arguments[0]); len(suggestions) > 0 {
		hint = "; did you mean " + strings.Join(suggestions, " or ") + "?"
	}
	return output.CommandError(fmt.Errorf("unknown command %q for %q%s\nSee %q", arguments[0], root.CommandPath(), hint, root.CommandPath()+" --help"))
}
