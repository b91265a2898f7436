// SPDX-License-Identifier: Apache-2.0

package output

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// choice is a flag with one of a few values.
type choice[T ~string] struct {
	value  *T
	values []T
}

// BindChoice adds a flag with one of the values to the command. The first value is the default.
func BindChoice[T ~string](command *cobra.Command, value *T, name, shorthand, usage string, values ...T) {
	*value = values[0]
	command.Flags().VarP(&choice[T]{value, values}, name, shorthand, usage)
}

func (c *choice[T]) String() string { return string(*c.value) }
func (c *choice[T]) Type() string   { return "string" }

func (c *choice[T]) Set(text string) error {
	if !slices.Contains(c.values, T(text)) {
		return fmt.Errorf("must be one of %s", strings.Join(c.texts(), ", "))
	}
	*c.value = T(text)
	return nil
}

func (c *choice[T]) texts() []string {
	texts := make([]string, 0, len(c.values))
	for _, value := range c.values {
		texts = append(texts, string(value))
	}
	return texts
}

// GroupFlags groups the flags in the command's usage: own flags, flags of the operator, flags of kubectl. Each of the two
// functions adds its flags to an empty set. The first may be nil.
func GroupFlags(command *cobra.Command, operator, kubectl func(*pflag.FlagSet)) {
	command.SetUsageFunc(func(cmd *cobra.Command) error {
		groups := []struct {
			title string
			flags *pflag.FlagSet
		}{
			{"Flags", pflag.NewFlagSet("own", pflag.ContinueOnError)},
			{"Flags of the operator (default: its current flags, or those of a default installation without a cluster)", setOf(operator)},
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
