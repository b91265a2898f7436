// SPDX-License-Identifier: Apache-2.0

package exit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/cli/exit"
)

func TestReportEscapesControlCharacters(t *testing.T) {
	var out strings.Builder
	code := exit.Report(&out, exit.CommandError(errors.New("webhook says \x1b]0;owned\x07\nsee \u202e")))
	if want := "error: webhook says " + `\u001b]0;owned\u0007` + "\nsee " + `\u202e` + "\n"; out.String() != want || code != exit.CodeError {
		t.Errorf("got %d, %q, want %q", code, out.String(), want)
	}
}
