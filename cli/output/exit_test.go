// SPDX-License-Identifier: Apache-2.0

package output

import (
	"errors"
	"strings"
	"testing"
)

func TestReportEscapesEachOfJoinedErrors(t *testing.T) {
	var out strings.Builder
	code := Report(&out, errors.Join(errors.New("webhook says \x1b]0;owned\x07\nsee \u202e"), errors.New("two")))
	if want := "error: webhook says " + `\u001b]0;owned\u0007` + "\nsee " + `\u202e` + "\nerror: two\n"; out.String() != want || code != 2 {
		t.Errorf("got %d, %q, want %q", code, out.String(), want)
	}
}
