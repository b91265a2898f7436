// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// continued returns the report to add to: the one in the file, or a new one if there is no file or replace is set. Results of
// another machine, operator or version are an error, because they cannot be compared.
func (r *Report) continued(file string, replace bool) (*Report, error) {
	kept, err := readReport(file)
	if replace || errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
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
		return nil, fmt.Errorf("%s has results of another setup (%s): name another file by --output, or discard these by --replace",
			file, strings.Join(differ, "; "))
	}
	// Keep the highest load: figures of a busy machine mean little.
	kept.Machine.Load = max(kept.Machine.Load, r.Machine.Load)
	return kept, nil
}

// entryOf returns the one of the report's entries that is meant, or a new one. The entry has the runs of this session only:
// older runs are dropped.
func entryOf[T any](r *Report, entries *[]*T, empty T, meant func(*T) bool) *T {
	i := slices.IndexFunc(*entries, meant)
	if i < 0 {
		i = len(*entries)
		*entries = append(*entries, new(T))
	}
	entry := (*entries)[i]
	if !r.touched[entry] {
		if r.touched == nil {
			r.touched = map[any]bool{}
		}
		r.touched[entry] = true
		*entry = empty
	}
	return entry
}
