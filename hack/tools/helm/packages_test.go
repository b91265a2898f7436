// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"fmt"
	"os"
	"testing"
)

// runWithPackages makes the chart and the manifests before the tests, and removes them.
func runWithPackages(m *testing.M) {
	code, err := func() (code int, err error) {
		if built, err = os.MkdirTemp("", "packages-"); err != nil {
			return 1, err
		}
		defer func() { _ = os.RemoveAll(built) }()
		for _, arguments := range [][]string{{"chart"}, {"dist", "--command-line=false"}} {
			if output, err := packageCommand(append(arguments, "--output", built)...).CombinedOutput(); err != nil {
				return 1, fmt.Errorf("make %s: %w\n%s", arguments[0], err, output)
			}
		}
		return m.Run(), nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
