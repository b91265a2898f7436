// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"
)

func TestParseAddons(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "kruise,virtual-node",
		" jobset ,,jobset": "jobset,kruise,virtual-node",
		"jobset,all":       strings.Join(knownNames(), ","),
		"none":             "",
	} {
		names, err := parseAddons(text)
		if got := strings.Join(names, ","); err != nil || got != want {
			t.Errorf("%q is %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"jobset,volcano", "jobset,none"} {
		if _, err := parseAddons(text); err == nil || !strings.Contains(err.Error(), ": choose from argo, jobset") {
			t.Errorf("the error for %q is %v", text, err)
		}
	}
}
