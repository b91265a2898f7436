// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"
	"time"
)

// clockVariable sets by how many seconds the clock of a program is ahead.
const clockVariable = "CLOCK_OFFSET_SECONDS"

// ClockOffset returns the environment variable that sets how far the clock of a program with AddClock is ahead of the machine's.
func ClockOffset(offset time.Duration) string {
	return fmt.Sprintf("%s=%d", clockVariable, int64(offset.Seconds()))
}

// ClockEdits are the changes of the standard library's clock.
var ClockEdits = edits{
	{"import (\n", "import (\n\t\"syscall\"\n"},
	{"\nvar startNano int64 = runtimeNano() - 1\n", `
var startNano int64 = runtimeNano() - 1

var clockOffset = func() int64 {
	value, _ := syscall.Getenv("` + clockVariable + `")
	seconds, _ := atoi(value)
	return int64(seconds)
}()
`},
	{"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += clockOffset\n"},
}

// AddClock replaces the clock of the standard library, so that ClockOffset sets the offset of time.Now. It writes to the directory.
func (r Replacements) AddClock(ctx context.Context, directory string) error {
	return r.editStandardLibrary(ctx, directory, "time/time.go", ClockEdits)
}
