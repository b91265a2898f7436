// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// updateEnvVar set to 1 writes the results of tests to documents instead of comparing.
const updateEnvVar = "UPDATE_DOCS"

// RequireSection requires that the section of a document has the content. A section begins with the line
// `<!-- begin NAME: ... -->` and ends with the line `<!-- end NAME -->`.
func RequireSection(tb testing.TB, file, name, content string) {
	tb.Helper()
	document, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(document), fmt.Sprintf("<!-- begin %s: ", name))
	comment, rest, opens := strings.Cut(rest, "-->\n")
	_, after, ends := strings.Cut(rest, fmt.Sprintf("<!-- end %s -->\n", name))
	if !begins || !opens || !ends {
		tb.Fatalf("%s has no section %s", file, name)
	}
	updated := fmt.Sprintf("%s<!-- begin %s: %s-->\n\n%s\n\n<!-- end %s -->\n%s", before, name, comment, strings.TrimSpace(content), name, after)
	switch {
	case updated == string(document):
	case os.Getenv(updateEnvVar) != "1":
		tb.Errorf("Section %s of %s is outdated; run this test with %s=1. Results:\n%s", name, file, updateEnvVar, content)
	default:
		if err := os.WriteFile(file, []byte(updated), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}
