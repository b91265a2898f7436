// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

func TestLogsHaveNoControlCharacters(t *testing.T) {
	for _, encoder := range []string{"json", "console"} {
		t.Run(encoder, func(t *testing.T) {
			operator, err := settings.Parse([]string{"--zap-encoder=" + encoder})
			if err != nil {
				t.Fatal(err)
			}
			const hostile = "a\x1b]0;owned\x07\u009b\u202e\x7f"
			var out bytes.Buffer
			newLogger(operator.Log, &out).Error(errors.New(hostile), hostile, "pod", hostile)
			if got := out.String(); got != safetext.EscapeLines(got) || strings.Count(got, `\u202e`) != 3 {
				t.Errorf("the log has control characters: %q", got)
			}
			if encoder == "json" && !json.Valid(out.Bytes()) {
				t.Errorf("the log is not JSON: %s", out.String())
			}
		})
	}
}
