// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/sidecar-termination/operator/internal/safetext"
)

// formatJUnit is the XML format that CI systems read.
const formatJUnit = "junit"

type junitReport struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name      string        `xml:"name,attr"`
	ClassName string        `xml:"classname,attr"`
	Failure   *junitProblem `xml:"failure"`
	Error     *junitProblem `xml:"error"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes the result as JUnit XML, without control characters. A file that could not be read is a case with an error.
func (r *result) writeJUnit(w io.Writer) error {
	report := junitReport{Name: kind}
	for _, file := range r.Files {
		suite := junitSuite{Name: safetext.Escape(file.File)}
		if file.Error != "" {
			suite.add(junitCase{Name: "read the file", Error: &junitProblem{Message: "the test file is invalid", Text: safetext.EscapeLines(file.Error)}})
		}
		for _, c := range file.Cases {
			made := junitCase{Name: safetext.Escape(c.Name)}
			if c.Outcome == failed {
				made.Failure = &junitProblem{Message: safetext.Escape(c.Decision), Text: safetext.EscapeLines(differences(c))}
			}
			suite.add(made)
		}
		report.Tests, report.Failures, report.Errors = report.Tests+suite.Tests, report.Failures+suite.Failures, report.Errors+suite.Errors
		report.Suites = append(report.Suites, suite)
	}
	data, err := xml.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = io.WriteString(w, xml.Header+string(data)+"\n")
	return err
}

// add adds a case to the suite.
func (s *junitSuite) add(c junitCase) {
	c.ClassName = s.Name
	s.Tests++
	if c.Failure != nil {
		s.Failures++
	}
	if c.Error != nil {
		s.Errors++
	}
	s.Cases = append(s.Cases, c)
}

// differences returns one line for each expectation that does not hold.
func differences(c caseResult) string {
	var lines []string
	for _, d := range c.Differences {
		lines = append(lines, fmt.Sprintf("%s: want %s, got %s", d.Field, d.Want, d.Got))
	}
	return strings.Join(lines, "\n")
}
