// SPDX-License-Identifier: Apache-2.0

// Command chart draws charts as SVG. It reads their descriptions as a JSON array from its standard input, and writes the same
// bytes for the same description. It is a module of its own so that the operator's module does not need a plotting library.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	directory := flag.String("directory", ".", "where to write the charts")
	flag.Parse()
	if err := run(os.Stdin, *directory); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// run draws every chart that the input describes into the directory.
func run(from io.Reader, directory string) error {
	decoder := json.NewDecoder(from)
	decoder.DisallowUnknownFields()
	var charts []Chart
	if err := decoder.Decode(&charts); err != nil {
		return fmt.Errorf("read the descriptions of the charts: %w", err)
	}
	for _, chart := range charts {
		if err := chart.check(); err != nil {
			return err
		}
		picture, err := chart.draw()
		if err != nil {
			return fmt.Errorf("draw %s: %w", chart.File, err)
		}
		if err := os.WriteFile(filepath.Join(directory, chart.File), picture, 0o644); err != nil {
			return fmt.Errorf("write a chart: %w", err)
		}
	}
	return nil
}
