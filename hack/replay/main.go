// SPDX-License-Identifier: Apache-2.0

// Command replay replays recordings against the rules of package podmodel. It prints how often each rule explained a change, and
// fails on a write that no rule explains.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/sidecar-termination/operator/hack/recording"
)

// maxPrinted is how many divergences are printed.
const maxPrinted = 50

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: replay DIRECTORY")
		os.Exit(2)
	}
	replay, err := recording.Replay(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
	names := slices.SortedFunc(maps.Keys(replay.Rules), func(a, b string) int {
		return cmp.Or(cmp.Compare(replay.Rules[b], replay.Rules[a]), cmp.Compare(a, b))
	})
	for _, name := range names {
		fmt.Printf("%9d  %s\n", replay.Rules[name], name)
	}
	for _, divergence := range replay.Divergences[:min(len(replay.Divergences), maxPrinted)] {
		fmt.Println(divergence)
	}
	fmt.Printf("%d transitions, %d gaps, %d divergences\n", replay.Transitions, replay.Gaps, len(replay.Divergences))
	switch {
	case len(replay.Divergences) > 0:
		os.Exit(1)
	case replay.Transitions == 0:
		fmt.Fprintln(os.Stderr, "replay: no transitions in", os.Args[1])
		os.Exit(1)
	}
}
