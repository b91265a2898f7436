// SPDX-License-Identifier: Apache-2.0

package output

import (
	"encoding/xml"
	"io"

	"github.com/sidecar-termination/operator/internal/safetext"
)

// FormatJUnit is the format of test results that most CI systems read.
const FormatJUnit Format = "junit"

// JUnitCase is a test in a JUnit report. It passed without failures and errors.
type JUnitCase struct {
	Class    string   `xml:"classname,attr"`
	Name     string   `xml:"name,attr"`
	Failures []string `xml:"failure,omitempty"`
	Errors   []string `xml:"error,omitempty"`
	Output   string   `xml:"system-out,omitempty"`
}

// WriteJUnit writes a report of the tests, without control characters.
func WriteJUnit(w io.Writer, name string, cases []JUnitCase) error {
	suite := struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr,omitempty"`
		Cases    []JUnitCase `xml:"testcase"`
	}{Name: name, Tests: len(cases), Cases: cases}
	for i := range cases {
		suite.Failures += min(len(cases[i].Failures), 1)
		suite.Errors += min(len(cases[i].Errors), 1)
	}
	data, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, xml.Header+safetext.EscapeLines(string(data))+"\n")
	return err
}
