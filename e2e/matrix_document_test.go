//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const matrixIntroduction = `<!-- Written by TestOutcomeMatrix with UPDATE_DOCS=1. Do not edit. -->

# Outcome matrix

What becomes of a Job with one main container and one sidecar, by the pod's restartPolicy, by how the main container and
the sidecar end, and by mode. exitCodes is Ignore, the default. Every cell has run on a real kubelet, once without and
once with a native sidecar beside the regular one.

| in a cell | Job | pod | main container ran |
|---|---|---|---|
| Complete | Complete | Succeeded | once |
| Failed | Failed | Failed | once |
| Failed, deleted | Failed | deleted by the Job controller | until backoffLimit |

In every cell the sidecar's process is gone in the end, and no pod has left a terminal phase. A number refers to what
Kubernetes decides before anybody can act, listed below the table.

`

// matrixDocument returns the table of the results, one row for every combination but the mode.
func matrixDocument(all []cell, results []outcome) string {
	var out strings.Builder
	out.WriteString(matrixIntroduction)
	out.WriteString("| restartPolicy | main | sidecar | native sidecar |")
	for _, mode := range modes {
		fmt.Fprintf(&out, " %s |", mode)
	}
	out.WriteString("\n|---|---|---|---|" + strings.Repeat("---|", len(modes)) + "\n")
	var notes []string
	for i := 0; i < len(all); i += len(modes) {
		native := "no"
		if all[i].native {
			native = "yes"
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |", all[i].restartPolicy, all[i].main, all[i].sidecar, native)
		for j := range modes {
			_, exception := all[i+j].expect()
			fmt.Fprintf(&out, " %s%s |", results[i+j].words(), footnote(&notes, exception.words()))
		}
		out.WriteString("\n")
	}
	out.WriteString("\n")
	for i, note := range notes {
		fmt.Fprintf(&out, "%d. %s\n", i+1, note)
	}
	return out.String()
}

// footnote returns the number of the note, which it adds to the others when it is new.
func footnote(notes *[]string, note string) string {
	if note == "" {
		return ""
	}
	if !slices.Contains(*notes, note) {
		*notes = append(*notes, note)
	}
	return fmt.Sprintf(" (%d)", slices.Index(*notes, note)+1)
}

func (o outcome) words() string {
	switch {
	case o == complete, o == failed:
		return o.job
	case o.pod == "Deleted":
		return o.job + ", deleted"
	default:
		return fmt.Sprintf("%s, pod %s, %d runs", o.job, o.pod, o.runs)
	}
}

func shortName(mode v1alpha1.Mode) string { return strings.ToLower(string(mode)) }
