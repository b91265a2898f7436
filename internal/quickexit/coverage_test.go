// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

// programs returns n paths of the same length.
func programs(count int) []string {
	var paths []string
	for i := range count {
		paths = append(paths, fmt.Sprintf("/opt/proxy-%05d/bin/%s", i, strings.Repeat("x", 200)))
	}
	return paths
}

func TestCoverage(t *testing.T) {
	const shell, server, proxy = "/bin/sh", "/app/server", "/opt/proxy"
	for name, test := range map[string]struct {
		entries []string
		covered []string // of shell, server, proxy
		errors  []string // parts of the error; none: all entries are valid
	}{
		"no entry is the default image":     {nil, []string{shell}, nil},
		"default is the default image":      {[]string{"default"}, []string{shell}, nil},
		"a path replaces the default image": {[]string{"/app/server"}, []string{server}, nil},
		"default and a path":                {[]string{"default", "/app/server"}, []string{shell, server}, nil},
		"two paths":                         {[]string{"/app/server", "/opt/proxy"}, []string{server, proxy}, nil},
		"an asterisk covers everything":     {[]string{"*"}, []string{shell, server, proxy}, nil},
		"every kind":                        {[]string{"default", "/app/server", "/opt/my app,v2", "*"}, []string{shell, server, proxy}, nil},
		"the entrypoint":                    {[]string{"/quick-exit"}, nil, nil},
		"an invalid path does not count": {
			[]string{"app/server", "/opt/proxy"}, []string{proxy}, []string{`invalid entry "app/server"`, `"default" for the paths of the shipped image`},
		},
		"an invalid path alone is not the default image": {[]string{"sh"}, nil, []string{`entry "sh"`, `"*" for an image that covers every command`}},
		"an empty entry is not the default image":        {[]string{""}, nil, []string{`invalid entry ""`}},
		"entries are not split":                          {[]string{"default,/app/server", "/app/server /opt/proxy"}, nil, []string{`entry "default,/app/server"`}},
		"a path that is not clean does not count":        {[]string{"/app//server"}, nil, []string{`entry "/app//server"`, "shortest form"}},
		"a directory is not a pattern":                   {[]string{"/app/", "/opt/*"}, nil, []string{`entry "/app/"`, "names a directory"}},
		"a path of the runtime":                          {[]string{"/proc/1/exe"}, nil, []string{"/proc/1/exe", "hidden in every container"}},
		"the first of several is named":                  {[]string{"/opt/proxy", "c", "d"}, []string{proxy}, []string{`entry "c"`}},
		"a long one is cut":                              {[]string{"x" + strings.Repeat("y", 5000)}, nil, []string{`"x` + strings.Repeat("y", 79) + `"`}},
		"the last entry that counts":                     {append(programs(quickexit.MaxEntries-1), server), []string{server}, nil},
		"entries beyond the limit":                       {append(programs(quickexit.MaxEntries), server), nil, []string{"1025 entries are more than the maximum of 1024"}},
		"an asterisk beyond the limit":                   {append(programs(quickexit.MaxEntries), "*"), nil, []string{"1025 entries"}},
	} {
		t.Run(name, func(t *testing.T) {
			coverage := quickexit.CoverageOf(test.entries...)
			for _, path := range []string{shell, server, proxy} {
				container := command(path)
				if got, want := quickexit.CoversContainer(coverage, &container) == nil, slices.Contains(test.covered, path); got != want {
					t.Errorf("%s is covered: %t", path, got)
				}
			}
			if entrypoint := command(); quickexit.CoversContainer(coverage, &entrypoint) != nil {
				t.Error("the entrypoint is not covered")
			}
			err := quickexit.ValidateEntries(test.entries)
			if (err == nil) != (len(test.errors) == 0) {
				t.Errorf("error is %v", err)
			}
			for _, part := range test.errors {
				if !strings.Contains(fmt.Sprint(err), part) {
					t.Errorf("error is %v, without %q", err, part)
				}
			}
		})
	}
}

func TestCoverageIsAValue(t *testing.T) {
	of := quickexit.CoverageOf[string]
	entries := []string{"default", "/a"}
	coverage := of(entries...)
	entries[1] = "/b"
	for name, test := range map[string]struct {
		a, b quickexit.Coverage
		want bool
	}{
		"the same entries": {coverage, of("default", "/a"), true},
		"no entries twice": {of(), quickexit.Coverage{}, true},
		"another entry":    {coverage, of("default", "/b"), false},
		"one more entry":   {coverage, of("default", "/a", "/b"), false},
		"no entries":       {of("default"), of(), false},
	} {
		if test.a.Equal(test.b) != test.want || test.b.Equal(test.a) != test.want || cmp.Equal(test.a, test.b) != test.want {
			t.Errorf("%s: %s equals %s: not %t", name, test.a, test.b, test.want)
		}
	}
	if got := coverage.String() + " " + of().String(); got != "default,/a default" {
		t.Errorf("written as %q", got)
	}
	if coverage.IsZero() || !of().IsZero() {
		t.Error("IsZero is wrong")
	}
}

// A list of one entry and the longest list cost the same.
func TestLookupAllocatesNothing(t *testing.T) {
	for _, container := range []corev1.Container{command("/app/server"), command("server")} {
		allocated := func(coverage quickexit.Coverage) float64 {
			return testing.AllocsPerRun(100, func() {
				if quickexit.CoversContainer(coverage, &container) == nil {
					t.Fatal("covered")
				}
			})
		}
		want := allocated(quickexit.Coverage{})
		for _, entries := range []int{1, quickexit.MaxEntries} {
			if got := allocated(quickexit.CoverageOf(programs(entries)...)); got != want {
				t.Errorf("command %q: %.0f allocations with a list of %d, and %.0f without one", container.Command[0], got, entries, want)
			}
		}
	}
}
