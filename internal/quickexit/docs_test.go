// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

func TestDocumentationListsTheDefaultSidecars(t *testing.T) {
	content, err := os.ReadFile("../../docs/quick-exit-image.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| sidecar | paths |\n|---|---|\n"
	for _, sidecar := range quickexit.DefaultSidecars() {
		table += fmt.Sprintf("| %s | `%s` |\n", sidecar.Name, strings.Join(sidecar.Paths, "`, `"))
	}
	if !strings.Contains(string(content), table+"\n") {
		t.Errorf("docs/quick-exit-image.md does not have this table:\n%s", table)
	}
	if !strings.Contains(string(content), quickexit.SearchPath) || !strings.Contains(string(content), quickexit.User) {
		t.Error("docs/quick-exit-image.md names another PATH or user")
	}
}
