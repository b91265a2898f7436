// SPDX-License-Identifier: Apache-2.0

// Package policytest is the subcommand that runs unit tests of policies: it compares the operator's decisions about pods in test
// files with expectations. It makes no decisions of its own, and connects to no cluster.
package policytest

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/cli/exit"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
)

// New returns the subcommand of the program.
func New(program source.Program) *cobra.Command {
	o := &options{program: program}
	command := &cobra.Command{
		Use:   "test PATH...",
		Short: "Runs unit tests of policies: pods in given states, and what the operator must decide",
		Long: `Runs unit tests of policies. A test file names policies and workloads, puts their pods into states, and says what the operator
must decide: roles of containers, the mode, the reason, the phase. The command uses the code of the operator. It connects to no
cluster.

PATH is a test file, or a directory with test files whose names end in _test.yaml, at any depth. Only the expectations that a
case names are compared. docs/guides/testing-policies.md describes the files.

The exit code is 0 if every case passed, 1 if a case failed, and 2 on errors: an invalid file, or no case to run.`,
		Example: fmt.Sprintf(`  # every *_test.yaml file of a directory
  %[1]s test policies/

  # some cases, until the first one fails
  %[1]s test policies/ --run 'main failed' --fail-fast

  # in CI
  %[1]s test policies/ -o junit > report.xml`, program.Name),
		Args: paths,
		RunE: func(cmd *cobra.Command, arguments []string) error { return o.test(cmd, arguments) },
	}
	flags := command.Flags()
	o.format.Bind(command, formatJUnit)
	flags.StringVar(&o.run, "run", "", "run only cases whose name matches the regular expression")
	flags.BoolVar(&o.failFast, "fail-fast", false, "stop after the first case that fails, or file that is invalid")
	output.GroupFlags(command, nil, nil)
	return exit.Wrap(command)
}

func paths(_ *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("specify what to test: a test file, or a directory with files that end in " + suffix)
	}
	return nil
}

type options struct {
	program  source.Program
	format   output.Format
	run      string
	failFast bool
}

func (o *options) test(cmd *cobra.Command, arguments []string) error {
	if err := o.format.Check(formatJUnit); err != nil {
		return err
	}
	selected, err := regexp.Compile(o.run)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	files, err := discover(arguments)
	if err != nil {
		return err
	}
	r := newResult()
	for _, path := range files {
		file := o.runFile(cmd.Context(), path, selected)
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		if file.Error != "" || len(file.Cases) > 0 {
			r.add(file)
		}
		if o.failFast && r.Summary.Failed+r.Summary.InvalidFiles > 0 {
			break
		}
	}
	o.program.Progress.Clear()
	if len(r.Files) == 0 {
		return fmt.Errorf("no case matches --run %q", o.run)
	}
	if o.format == formatJUnit {
		err = r.writeJUnit(cmd.OutOrStdout())
	} else {
		err = o.format.Write(cmd.OutOrStdout(), r, r.text)
	}
	switch {
	case err != nil:
		return err
	case r.Summary.InvalidFiles > 0:
		return fmt.Errorf("%d of %d test files invalid", r.Summary.InvalidFiles, len(files))
	case r.Summary.Failed > 0:
		return exit.ErrProblem
	}
	return nil
}

// runFile runs the selected cases of a file. If one of its cases is invalid, none runs.
func (o *options) runFile(ctx context.Context, path string, selected *regexp.Regexp) fileResult {
	r := fileResult{File: path, Cases: []caseResult{}}
	s, err := load(ctx, o.program, path)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	fixtures := make([]fixture, 0, len(s.cases))
	var problems []error
	for i, c := range s.cases {
		f, err := s.fixture(ctx, c)
		if err != nil {
			problems = append(problems, inCase(i, err))
		}
		if len(problems) == maxInvalidCases {
			break
		}
		fixtures = append(fixtures, f)
	}
	if err := errors.Join(problems...); err != nil {
		r.Error = err.Error()
		return r
	}
	r.Notes = s.notes()
	for i, c := range s.cases {
		if !selected.MatchString(c.Name) {
			continue
		}
		o.program.Progress.Step("cases")
		done := newCaseResult(c, fixtures[i])
		r.Cases = append(r.Cases, done)
		if o.failFast && done.Outcome == failed {
			break
		}
	}
	return r
}

// inCase prefixes each of the joined errors with the field of the case.
func inCase(index int, err error) error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return fmt.Errorf("cases[%d].%w", index, err)
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, inCase(index, one))
	}
	return errors.Join(all...)
}
