// SPDX-License-Identifier: Apache-2.0

package output

import (
	"cmp"
	"fmt"
	"io"
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
	c := &choice[T]{value, values}
	command.Flags().VarP(c, name, shorthand, usage)
	// It fails only for unknown flags, and those that are completed twice.
	_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.texts(), cobra.ShellCompDirectiveNoFileComp))
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

func (c *choice[T]) texts() []cobra.Completion {
	texts := make([]cobra.Completion, 0, len(c.values))
	for _, value := range c.values {
		texts = append(texts, string(value))
	}
	return texts
}

// helpWidth is the maximum length of a line of help, besides examples.
const helpWidth = 100

// SetHelp sets the help of the command, wrapped to the terminal. It groups the flags: own flags, flags of the operator, flags of kubectl.
// Each of the two functions adds its flags to an empty set, or is nil.
func SetHelp(command *cobra.Command, operator, kubectl func(*pflag.FlagSet)) {
	write := func(w io.Writer, cmd *cobra.Command, long string) error {
		p := &Printer{terminalWidth: min(cmp.Or(terminalWidth(w), helpWidth), helpWidth)}
		if long != "" {
			p.paragraphs(long)
			p.line("")
		}
		p.usage(cmd, setOf(operator), setOf(kubectl))
		_, err := io.WriteString(w, p.text.String())
		return err
	}
	command.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _ = write(cmd.OutOrStdout(), cmd, cmd.Long) })
	command.SetUsageFunc(func(cmd *cobra.Command) error { return write(cmd.OutOrStderr(), cmd, "") })
}

// paragraphs wraps paragraphs and lists, whose items start with a dash.
func (p *Printer) paragraphs(text string) {
	const item = "  - "
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			p.line("")
		}
		for j, part := range strings.Split("\n"+paragraph, "\n"+item) {
			head := item
			if j == 0 {
				head = ""
			}
			if part != "" {
				p.Prose(head, part)
			}
		}
	}
}

func (p *Printer) usage(cmd *cobra.Command, operator, kubectl *pflag.FlagSet) {
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		line = cmd.CommandPath() + " COMMAND"
	}
	p.line("Usage:")
	p.Prose("  ", line)
	if cmd.HasExample() {
		p.line("\nExamples:\n" + cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		p.line("\nCommands:")
		for _, below := range cmd.Commands() {
			if below.IsAvailableCommand() {
				p.Prose(fmt.Sprintf("  %-9s", below.Name()), below.Short)
			}
		}
	}
	own := pflag.NewFlagSet("own", pflag.ContinueOnError)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if operator.Lookup(flag.Name) == nil && kubectl.Lookup(flag.Name) == nil {
			own.AddFlag(flag)
		}
	})
	for _, group := range []struct {
		title string
		flags *pflag.FlagSet
	}{
		{"Flags", own},
		{"Flags of the operator (default: its current flags, or those of a default installation without a cluster)", operator},
		{"Flags of kubectl", kubectl},
	} {
		if group.flags.HasFlags() {
			p.line("\n" + group.title + ":")
			p.flags(group.flags)
		}
	}
	if cmd.HasAvailableSubCommands() {
		p.line("\nFor the flags of a command: " + cmd.CommandPath() + " COMMAND --help")
	}
}

// flags wraps the usages of flags. That of pflag leaves some lines long.
func (p *Printer) flags(flags *pflag.FlagSet) {
	for line := range strings.Lines(flags.FlagUsages()) {
		line = strings.TrimRight(line, "\n")
		_, usage, _ := strings.Cut(strings.TrimLeft(line, " "), "   ")
		usage = strings.TrimLeft(usage, " ")
		p.Prose(strings.TrimSuffix(line, usage), usage)
	}
}

func setOf(bind func(*pflag.FlagSet)) *pflag.FlagSet {
	flags := pflag.NewFlagSet("group", pflag.ContinueOnError)
	if bind != nil {
		bind(flags)
	}
	return flags
}
