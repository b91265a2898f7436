// SPDX-License-Identifier: Apache-2.0

package plan

import "testing"

func TestShellQuote(t *testing.T) {
	for text, want := range map[string]string{
		"/opt/proxy-1.2/bin/proxy": "/opt/proxy-1.2/bin/proxy",
		"azAZ09":                   "azAZ09",
		"/opt/my proxy":            "'/opt/my proxy'",
		"/opt/$(reboot)":           "'/opt/$(reboot)'",
		"/opt/a;reboot":            "'/opt/a;reboot'",
		"/opt/it's":                `'/opt/it'\''s'`,
		"":                         "''",
	} {
		if got := shellQuote(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
