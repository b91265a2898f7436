// SPDX-License-Identifier: Apache-2.0

package output

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/internal/safetext"
)

// hostile has a control or a format character of each kind.
const hostile = "a\x1b]0;owned\x07b\nc\td\r\x7fe\u009bf\u0085g\u202eh\u2066i\u200bj\U000e0041k"

func TestJSONAndYAMLEscapeHostileText(t *testing.T) {
	for name, text := range map[string]string{
		"plain": "a: b", "hostile": hostile, "right-to-left": "a\u202eb", "DEL": "a\x7f", "C1": "a\u009b", "tag": "\U000e0041", "ESC": "\x1b",
	} {
		t.Run(name, func(t *testing.T) {
			value := map[string]string{"message": text}
			for format, read := range map[Format]func([]byte, any) error{
				FormatJSON: json.Unmarshal,
				FormatYAML: func(data []byte, into any) error { return yaml.Unmarshal(data, into) },
			} {
				var out strings.Builder
				if err := format.Write(&out, value, nil); err != nil {
					t.Fatalf("%s: %v", format, err)
				}
				if got := out.String(); got != safetext.EscapeLines(got) {
					t.Errorf("%s has control characters: %q", format, got)
				}
				decoded := map[string]string{}
				if err := read([]byte(out.String()), &decoded); err != nil {
					t.Fatalf("%s: %v", format, err)
				}
				if difference := cmp.Diff(value, decoded); difference != "" {
					t.Errorf("%s reads as something else (-want +got):\n%s", format, difference)
				}
			}
		})
	}
}

func TestTextFollowsTheTerminal(t *testing.T) {
	heading := []string{"NAME", "METHOD", "EMPTY COLUMN", "SETTINGS"}
	rows := [][]string{
		{"istio-proxy", "CRR, then PodPhase, then Image, then nothing else", "", "mode Auto (default)"},
		{"", "", "", "image registry.example/quick-exit:v1 (policy)"},
	}
	write := func(p *Printer) {
		p.Table(heading, rows)
		p.Prose("  note  ", "one two three four five six seven eight nine ten eleven twelve thirteen")
	}
	for name, tc := range map[string]struct {
		widths []int
		want   string
	}{
		"no or wide terminal": {[]int{0, 120}, `NAME          METHOD                                              SETTINGS
istio-proxy   CRR, then PodPhase, then Image, then nothing else   mode Auto (default)
                                                                  image registry.example/quick-exit:v1 (policy)
  note  one two three four five six seven eight nine ten eleven twelve thirteen
`},
		"one narrow column": {[]int{100}, `NAME          METHOD                                   SETTINGS
istio-proxy   CRR, then PodPhase, then Image, then     mode Auto (default)
              nothing else
                                                       image registry.example/quick-exit:v1 (policy)
  note  one two three four five six seven eight nine ten eleven twelve thirteen
`},
		"two narrow columns": {[]int{64}, `NAME          METHOD             SETTINGS
istio-proxy   CRR, then          mode Auto (default)
              PodPhase, then
              Image, then
              nothing else
                                 image
                                 registry.example/quick-exit:v1
                                 (policy)
  note  one two three four five six seven eight nine ten eleven
        twelve thirteen
`},
		"narrower than the words": {[]int{10}, `NAME          METHOD             SETTINGS
istio-proxy   CRR, then          mode Auto (default)
              PodPhase, then
              Image, then
              nothing else
                                 image
                                 registry.example/quick-exit:v1
                                 (policy)
  note  one two three
        four five six
        seven eight nine
        ten eleven
        twelve thirteen
`},
	} {
		for _, width := range tc.widths {
			p := &Printer{terminalWidth: width}
			write(p)
			if difference := cmp.Diff(tc.want, p.text.String()); difference != "" {
				t.Errorf("%s, %d columns (-want +got):\n%s", name, width, difference)
			}
		}
	}
}

func TestReportEscapesEachOfJoinedErrors(t *testing.T) {
	var out strings.Builder
	code := Report(&out, errors.Join(errors.New("webhook says \x1b]0;owned\x07\nsee \u202e"), errors.New("two")))
	if want := "error: webhook says " + `\u001b]0;owned\u0007` + "\nsee " + `\u202e` + "\nerror: two\n"; out.String() != want || code != 2 {
		t.Errorf("got %d, %q, want %q", code, out.String(), want)
	}
}
