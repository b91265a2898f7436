// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// clockVariable sets by how many seconds the clock of a program is ahead.
const clockVariable = "CLOCK_OFFSET_SECONDS"

// ClockOffset returns the environment variable that sets how far the clock of a program with AddClock is ahead of the machine's.
func ClockOffset(offset time.Duration) string {
	return fmt.Sprintf("%s=%d", clockVariable, int64(offset.Seconds()))
}

// ClockEdits are the changes of the standard library's clock: pairs of an original snippet and its replacement.
var ClockEdits = [][2]string{
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
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find the Go toolchain: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return fmt.Errorf("read the clock of the standard library: %w", err)
	}
	changed := string(source)
	for _, edit := range ClockEdits {
		if n := strings.Count(changed, edit[0]); n != 1 {
			return fmt.Errorf("%s has %d times, not once: %s", original, n, edit[0])
		}
		changed = strings.Replace(changed, edit[0], edit[1], 1)
	}
	r[original] = filepath.Join(directory, "time.go")
	return layout.WriteFile(r[original], []byte(changed))
}
