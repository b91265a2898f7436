// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// published are the files that documents are made from and those that they are made into.
type published struct {
	results, microbench string
	performance         string
	operations          string
}

func newReportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report",
		Short: "Write the kept results into the documents, and say what charts to draw",
		Long: "Writes docs/performance/bench.json and microbench.txt into docs/performance.md and docs/operations.md, and to the standard " +
			"output the descriptions of charts for hack/tools/chart.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			directories, err := layout.Find()
			if err != nil {
				return err
			}
			docs := filepath.Join(directories.Repository, "docs")
			return published{
				results: filepath.Join(docs, "performance", "bench.json"), microbench: filepath.Join(docs, "performance", "microbench.txt"),
				performance: filepath.Join(docs, "performance.md"), operations: filepath.Join(docs, "operations.md"),
			}.write(command.OutOrStdout())
		},
	}
}

// write makes the documents from the results.
func (p published) write(descriptions io.Writer) error {
	report, err := readReport(p.results)
	if err != nil {
		return err
	}
	decisions, err := readMicrobench(p.microbench)
	if err != nil {
		return err
	}
	sections := []struct{ file, name, content string }{
		{p.performance, "results", resultsSection(report, decisions)},
		{p.performance, "beyond", beyondSection(report)},
		{p.operations, "sizing", sizingSection(report)},
	}
	for _, section := range sections {
		before, err := os.ReadFile(section.file)
		if err != nil {
			return fmt.Errorf("read a document: %w", err)
		}
		after, err := replaceSection(string(before), section.name, section.content)
		if err != nil {
			return fmt.Errorf("%s: %w", section.file, err)
		}
		if err := os.WriteFile(section.file, []byte(after), 0o644); err != nil {
			return fmt.Errorf("write a document: %w", err)
		}
	}
	encoder := json.NewEncoder(descriptions)
	encoder.SetIndent("", "  ")
	return encoder.Encode(charts(report, decisions))
}

// readReport reads a report that save has written. Where there is none it returns nil.
func readReport(file string) (*Report, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the results: %w", err)
	}
	report := &Report{}
	if err := json.Unmarshal(content, report); err != nil {
		return nil, fmt.Errorf("read the results in %s: %w", file, err)
	}
	return report, nil
}
