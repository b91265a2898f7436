// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Kind says what the commands of a block need.
type Kind string

// Kinds of blocks.
const (
	// NoCommands is a block that is no commands.
	NoCommands Kind = "no commands"
	// Offline commands need the repository and the operator's program.
	Offline Kind = "offline"
	// Cluster commands need a cluster in which the operator runs.
	Cluster Kind = "cluster"
	// Unknown commands can be run by no test.
	Unknown Kind = "unknown"
)

// Script returns the commands of a block in the order in which a reader types them, without what they print.
func (b Block) Script() string {
	switch b.Language {
	case "sh":
		return b.Text
	case "console":
		return typed(b.Text)
	}
	return ""
}

// typed returns the lines after a prompt, with the lines that continue them.
func typed(session string) string {
	var script strings.Builder
	continued := false
	for line := range strings.Lines(session) {
		command, prompted := strings.CutPrefix(line, "$ ")
		if !prompted && !continued {
			continue
		}
		script.WriteString(command)
		continued = strings.HasSuffix(strings.TrimSpace(line), `\`)
	}
	return script.String()
}

// Kind says what the commands of the block need: the most that any of them does.
func (b Block) Kind() (Kind, error) {
	script := b.Script()
	if script == "" {
		return NoCommands, nil
	}
	calls, err := Calls(script)
	if err != nil {
		return Unknown, err
	}
	kind := Offline
	for _, call := range calls {
		switch needs(call) {
		case Unknown:
			return Unknown, nil
		case Cluster:
			kind = Cluster
		}
	}
	return kind, nil
}

// Calls returns the words of every command in a script as they are written, without the quotes around them.
func Calls(script string) ([][]string, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Errorf("read commands: %w", err)
	}
	var calls [][]string
	syntax.Walk(file, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			words := make([]string, 0, len(call.Args))
			for _, word := range call.Args {
				words = append(words, strings.Trim(script[word.Pos().Offset():word.End().Offset()], `"'`))
			}
			calls = append(calls, words)
		}
		return true
	})
	return calls, nil
}

// known are the commands that a test can run, by how they begin; the first that fits counts.
var known = []struct {
	begin []string
	needs Kind
}{
	{[]string{"cat"}, Offline},
	{[]string{"cd"}, Offline},
	{[]string{"cp"}, Offline},
	{[]string{"echo"}, Offline},
	{[]string{"export"}, Offline},
	{[]string{"grep"}, Offline},
	{[]string{"mkdir"}, Offline},
	{[]string{"make", "help"}, Offline},
	{[]string{"go", "run", "./hack/packaging"}, Offline},
	{[]string{"go", "run", "./hack/probe-virtual-node"}, Cluster},
	{[]string{"sidecar-termination-operator", "quick-exit-image"}, Offline},
	{[]string{"kubectl"}, Cluster},
}

// needs says what one command needs.
func needs(call []string) Kind {
	if slices.ContainsFunc(call, isRemote) {
		return Unknown
	}
	if begins(call, "kubectl", "sidecar-termination") && (slices.Contains(call, "-f") || slices.Contains(call, "-k")) {
		return Offline // manifests are all that is read
	}
	for _, command := range known {
		if begins(call, command.begin...) {
			return command.needs
		}
	}
	return Unknown
}

func begins(words []string, with ...string) bool {
	return len(words) >= len(with) && slices.Equal(words[:len(with)], with)
}

// isRemote reports whether an argument names a place that tests cannot reach.
func isRemote(argument string) bool {
	return strings.HasPrefix(argument, "https://") || argument == "--push"
}
