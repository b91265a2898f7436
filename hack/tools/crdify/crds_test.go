// SPDX-License-Identifier: Apache-2.0

// Package crdify_test checks that the custom resource definitions do not break objects or clients of an earlier state. It is a
// module of its own, because the operator needs none of that.
package crdify_test

import (
	"os"
	"testing"
)

// repository is the root of the repository.
const repository = "../../.."

// CRD_BASE names the commit to compare with. The default is the last release.
func TestDefinitionsAreCompatible(t *testing.T) {
	old, err := findBaseline(repository, os.Getenv("CRD_BASE"))
	if err != nil {
		t.Fatal(err)
	}
	if old == nil {
		t.Log("There is no release to compare with")
		return
	}
	report, err := compare(old.definitions, current(t))
	if err != nil {
		t.Fatalf("compare with %s: %v", old.name, err)
	}
	if report != "" {
		t.Errorf("changes that break users of %s:\n%s", old.name, report)
	}
}
