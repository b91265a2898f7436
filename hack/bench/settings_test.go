// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parsed returns the settings that the flags make, and what is wrong with them.
func parsed(t *testing.T, arguments ...string) (*settings, error) {
	t.Helper()
	s := &settings{}
	flags := newFlags(s)
	if err := flags.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return s, s.check()
}

func TestSettingsCheck(t *testing.T) {
	for _, test := range []struct {
		arguments string
		want      string // of the error; empty: none
	}{
		{"", ""},
		{"--pods 0 --unrelated 0", ""},
		{"--runs 0", "--runs"},
		{"--pods 5001", "--pods"},
		{"--steady-pods 0", "--steady-pods"},
		{"--modes CRR,Force", `"Force"`},
		{"--rates 50,0", "--rates"},
		{"--contenders operator,nobody", `"nobody"`},
		{"--parts all", `"all"`},
		{"--axes nodes", `"nodes"`},
		{"--large-runs 0", "--large-runs"},
		{"--large-pods 5001", "--large-pods"},
		{"--scale-runs 0", "--scale-runs"},
		{"--scale-pods 0", "--scale-pods"},
		{"--unrelated 100001", "--unrelated"},
		{"--candidates=-1", "--candidates"},
		{"--policies 0", "--policies"},
		{"--cold-start-candidates 99", "--cold-start-candidates"},
		{"--handover-pods 199", "--handover-pods"},
		{"--parts large --large-cluster 300", ""},
		{"--large-cluster 299", "--large-cluster"},
		{"--large-cluster 150001", "--large-cluster"},
		{"--parts completion,reversals --modes CRR", ""},
		{"--completion-jobs 31", "--completion-jobs"},
		{"--completion-runs 0", "--completion-runs"},
		{"--reversal-jobs 0", "--reversal-jobs"},
	} {
		t.Run(test.arguments, func(t *testing.T) {
			_, err := parsed(t, strings.Fields(test.arguments)...)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
		})
	}
}

func TestGrowing(t *testing.T) {
	for _, test := range []struct {
		name, arguments string
		want            []string
	}{
		{
			"everything, the least first", "--candidates 20,10",
			[]string{"unrelatedPods [0 10000 50000] [operator kruise]", "candidates [10 20] [operator kruise-lifted]", "policies [1 100 1000 10000] [operator]"},
		},
		{"one axis", "--axes policies", []string{"policies [1 100 1000 10000] [operator]"}},
		{"one contender", "--contenders kruise", []string{"unrelatedPods [0 10000 50000] [kruise]"}},
		{"bare clients alone, who do not grow", "--contenders floor,writes", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := parsed(t, strings.Fields(test.arguments)...)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range s.growing() {
				got = append(got, fmt.Sprint(g.axis, " ", g.counts, " ", g.contenders))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("growing (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompletionIsNotMeasuredByDefault(t *testing.T) {
	s, err := parsed(t)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ownParts, s.parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}
