// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// continued returns the report that this session adds to: the one that is kept in the file, so that parts can be measured one
// after the other, or a new one where there is no file or it is to be replaced. Results of another machine, another operator
// or other versions are an error, for they would stand beside those of this session as if they could be compared.
func (r *Report) continued(file string, replace bool) (*Report, error) {
	kept, err := readReport(file)
	if err != nil && !replace {
		return nil, err
	}
	if kept == nil || replace {
		return r, nil
	}
	var differ []string
	for _, field := range []struct{ name, kept, now string }{
		{"CPUs", strconv.Itoa(kept.Machine.CPUs), strconv.Itoa(r.Machine.CPUs)},
		{"kernel", kept.Machine.Kernel, r.Machine.Kernel},
		{"Go", kept.Machine.Go, r.Machine.Go},
		{"Kubernetes", kept.Kubernetes, r.Kubernetes},
		{"OpenKruise", kept.Kruise, r.Kruise},
		{"operator", kept.Operator, r.Operator},
	} {
		if field.kept != field.now {
			differ = append(differ, fmt.Sprintf("%s %q, now %q", field.name, field.kept, field.now))
		}
	}
	if len(differ) > 0 {
		return nil, fmt.Errorf("%s has results of something else (%s): name another file by --output, or start this one anew by --replace",
			file, strings.Join(differ, "; "))
	}
	// Figures of a busy machine mean little, whichever part it was.
	if before(kept.Machine.Load) < before(r.Machine.Load) {
		kept.Machine.Load = r.Machine.Load
	}
	return kept, nil
}

// before reads a load average.
func before(load string) float64 {
	value, err := strconv.ParseFloat(load, 64)
	if err != nil {
		return -1
	}
	return value
}

// anew reports whether this is the first that the session adds to an entry of the report. What the entry had is of an earlier
// session then, and must go.
func (r *Report) anew(entry any) bool {
	if r.touched == nil {
		r.touched = map[any]bool{}
	}
	if r.touched[entry] {
		return false
	}
	r.touched[entry] = true
	return true
}

// entryOf returns the one of the report's entries that is meant, a new one if there is none. It has what this session has
// added to it, and is empty if that is nothing yet.
func entryOf[T any](r *Report, entries *[]*T, empty T, meant func(*T) bool) *T {
	i := slices.IndexFunc(*entries, meant)
	if i < 0 {
		i = len(*entries)
		*entries = append(*entries, new(T))
	}
	entry := (*entries)[i]
	if r.anew(entry) {
		*entry = empty
	}
	return entry
}

// digest tells builds of the operator apart.
func digest(program string) (string, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read the operator: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(content)), nil
}
