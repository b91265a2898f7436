// SPDX-License-Identifier: Apache-2.0

package output

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// GroupFlags groups the flags in the command's usage: own flags, flags of the operator, flags of kubectl. Each of the two
// functions adds its flags to an empty set. The first may be nil.
func GroupFlags(command *cobra.Command, operator, kubectl func(*pflag.FlagSet)) {
	command.SetUsageFunc(func(cmd *cobra.Command) error {
		groups := []struct {
			title string
			flags *pflag.FlagSet
		}{
			{"Flags", pflag.NewFlagSet("own", pflag.ContinueOnError)},
			{"Flags of the operator (default: its current flags, or those of --install without a cluster)", setOf(operator)},
			{"Flags of kubectl", setOf(kubectl)},
		}
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if groups[1].flags.Lookup(flag.Name) == nil && groups[2].flags.Lookup(flag.Name) == nil {
				groups[0].flags.AddFlag(flag)
			}
		})
		var text strings.Builder
		_, _ = fmt.Fprintf(&text, "Usage:\n  %s\n", cmd.UseLine())
		if cmd.HasExample() {
			_, _ = fmt.Fprintf(&text, "\nExamples:\n%s\n", cmd.Example)
		}
		columns := cmp.Or(terminalWidth(cmd.OutOrStderr()), proseWidth+10)
		for _, group := range groups {
			if group.flags.HasFlags() {
				_, _ = fmt.Fprintf(&text, "\n%s:\n%s", group.title, group.flags.FlagUsagesWrapped(columns))
			}
		}
		_, err := cmd.OutOrStderr().Write([]byte(text.String()))
		return err
	})
}

func setOf(bind func(*pflag.FlagSet)) *pflag.FlagSet {
	flags := pflag.NewFlagSet("group", pflag.ContinueOnError)
	if bind != nil {
		bind(flags)
	}
	return flags
}
