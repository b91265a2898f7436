// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"

	"golang.org/x/perf/benchfmt"
)

// Microbench is one of Go's benchmarks with all its runs.
type Microbench struct {
	// Name is without the prefix Benchmark and the number of CPUs: PodEvent/Policies100.
	Name string
	Runs []MicrobenchRun
}

// MicrobenchRun is one run, each figure per operation.
type MicrobenchRun struct {
	Microseconds, Bytes, Allocations float64
}

// cpus is what the testing package appends to names.
var cpus = regexp.MustCompile(`-\d+$`)

// readMicrobench reads what make microbench has printed; of a file that does not exist there is nothing. The order is that
// of the file.
func readMicrobench(file string) ([]*Microbench, error) {
	opened, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the benchmarks of decisions: %w", err)
	}
	defer func() { _ = opened.Close() }()
	var read []*Microbench
	reader := benchfmt.NewReader(opened, file)
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("read the benchmarks of decisions: %w", record)
		case *benchfmt.Result:
			name := cpus.ReplaceAllString(record.Name.String(), "")
			i := slices.IndexFunc(read, func(m *Microbench) bool { return m.Name == name })
			if i < 0 {
				i = len(read)
				read = append(read, &Microbench{Name: name})
			}
			read[i].Runs = append(read[i].Runs, microbenchRun(record))
		}
	}
	if err := reader.Err(); err != nil {
		return nil, fmt.Errorf("read the benchmarks of decisions: %w", err)
	}
	return read, nil
}

func microbenchRun(result *benchfmt.Result) MicrobenchRun {
	value := func(unit string) float64 {
		figure, _ := result.Value(unit)
		return figure
	}
	return MicrobenchRun{Microseconds: value("sec/op") * 1e6, Bytes: value("B/op"), Allocations: value("allocs/op")}
}

// find returns the benchmark of that name, or nil.
func find(benchmarks []*Microbench, name string) *Microbench {
	for _, benchmark := range benchmarks {
		if benchmark.Name == name {
			return benchmark
		}
	}
	return nil
}
