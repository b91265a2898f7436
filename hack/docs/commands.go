// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sidecar-termination/operator/e2e/docs"
)

// classify sets a block's kind and commands. The kind is Unknown if the script cannot be parsed.
func classify(block *docs.Block) {
	script := block.Script()
	if script == "" {
		return
	}
	own, err := calls(script)
	given, errOfGiven := calls(block.Given)
	if err != nil || errOfGiven != nil {
		block.Kind = docs.Unknown
		return
	}
	block.Commands = append(given, own...)
	block.Kind = docs.Offline
	for _, call := range own {
		block.Kind = max(block.Kind, needs(call))
	}
}

// calls returns the words of every command in a script, without quotes.
func calls(script string) ([][]string, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Errorf("read commands: %w", err)
	}
	var found [][]string
	syntax.Walk(file, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			words := make([]string, 0, len(call.Args))
			for _, word := range call.Args {
				words = append(words, strings.Trim(script[word.Pos().Offset():word.End().Offset()], `"'`))
			}
			found = append(found, words)
		}
		return true
	})
	return found, nil
}

// offline are commands that tests can run without a cluster.
var offline = []string{"cat", "cd", "cp", "echo", "export", "grep", "mkdir"}

// needs returns what one command needs.
func needs(call []string) docs.Kind {
	readsManifests := slices.Contains(call, "-f") || slices.Contains(call, "-k")
	switch {
	case slices.Contains(call, "--push"), slices.ContainsFunc(call, func(word string) bool { return strings.HasPrefix(word, "https://") }):
		return docs.Unknown
	case begins(call, "kubectl", "sidecar-termination") && readsManifests,
		begins(call, "kubectl", "sidecar-termination", "test"),
		begins(call, "make", "help"),
		slices.Contains(offline, call[0]):
		return docs.Offline
	case call[0] == "kubectl":
		return docs.Cluster
	}
	return docs.Unknown
}

func begins(words []string, with ...string) bool {
	return len(words) >= len(with) && slices.Equal(words[:len(with)], with)
}
