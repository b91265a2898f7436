// SPDX-License-Identifier: Apache-2.0

package output

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sidecar-termination/operator/internal/safetext"
)

// ErrProblem means that the command has reported a problem.
var ErrProblem = errors.New("a problem was found")

// Report writes the error of a command, except ErrProblem, and returns the exit code, on which scripts depend: 0 without an error, 1 with
// ErrProblem, and 2 with any other.
func Report(w io.Writer, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrProblem):
		return 1
	}
	all := []error{err}
	if joined, several := err.(interface{ Unwrap() []error }); several {
		all = joined.Unwrap()
	}
	for _, one := range all {
		if !errors.Is(one, context.Canceled) {
			_, _ = fmt.Fprintln(w, "error:", safetext.EscapeLines(one.Error()))
		}
	}
	return 2
}
