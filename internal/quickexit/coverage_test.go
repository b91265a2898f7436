// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

func TestCoverageSaysWhichCommandsAreCovered(t *testing.T) {
	const shell, server, proxy = "/bin/sh", "/app/server", "/opt/proxy"
	many := strings.Repeat("/a,", quickexit.MaxEntries-1)
	for name, test := range map[string]struct {
		coverage quickexit.Coverage
		covered  []string // of shell, server, proxy
	}{
		"nothing is the shipped image":         {"", []string{shell}},
		"only separators are the same":         {" ,\n", []string{shell}},
		"default is the shipped image":         {"default", []string{shell}},
		"a path is the full set":               {"/app/server", []string{server}},
		"default and a path":                   {"default,/app/server", []string{shell, server}},
		"white space separates":                {"default\n/app/server\t/opt/proxy ", []string{shell, server, proxy}},
		"an asterisk is everything":            {"*", []string{shell, server, proxy}},
		"an asterisk among others":             {"/app/server, *", []string{shell, server, proxy}},
		"what is no path counts for nothing":   {"app/server,/opt/proxy", []string{proxy}},
		"alone it is not the shipped image":    {"sh", nil},
		"a path that is not in shortest form":  {"/app//server", nil},
		"a directory is no pattern":            {"/app/,/opt/*", nil},
		"the last entry that is read":          {quickexit.Coverage(many + "/app/server"), []string{server}},
		"the first entry that is not":          {quickexit.Coverage("/a," + many + "/app/server,*"), nil},
		"the entrypoint need not be mentioned": {"/quick-exit", nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{shell, server, proxy} {
				container := command(path)
				if got, want := quickexit.CoversContainer(test.coverage, &container) == nil, slices.Contains(test.covered, path); got != want {
					t.Errorf("%s is covered: %t", path, got)
				}
			}
			if entrypoint := command(); quickexit.CoversContainer(test.coverage, &entrypoint) != nil {
				t.Error("the entrypoint is not covered")
			}
		})
	}
}

func TestEntriesThatDoNotCountAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		coverage quickexit.Coverage
		want     []string // parts of the error; none: no error
	}{
		"nothing":             {"", nil},
		"every kind":          {"default, /app/server\n*", nil},
		"as many as are read": {quickexit.Coverage(strings.Repeat("/a ", quickexit.MaxEntries)), nil},
		"one more":            {quickexit.Coverage(strings.Repeat("/a ", quickexit.MaxEntries+1)), []string{"only the first 1024 of 1025 entries"}},
		"a relative path":     {"/a,bin/x", []string{`entry "bin/x" does not count`, `"default" for the paths of the shipped image`}},
		"another word":        {"all", []string{`entry "all"`, `"*" for an image that covers every command`}},
		"not clean":           {"/a/../b", []string{`entry "/a/../b"`, "shortest form"}},
		"a directory":         {"/a/", []string{`entry "/a/"`, "names a directory"}},
		"of the runtime":      {"/proc/1/exe", []string{"/proc/1/exe", "hidden in every container"}},
		"several":             {"a,/b,c,d", []string{`entry "a"`, "and 2 more entries"}},
		"a long one":          {quickexit.Coverage("x" + strings.Repeat("y", 5000)), []string{`"x` + strings.Repeat("y", 79) + `"`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.coverage.Check()
			if (err == nil) != (len(test.want) == 0) {
				t.Errorf("error is %v", err)
			}
			for _, part := range test.want {
				if !strings.Contains(fmt.Sprint(err), part) {
					t.Errorf("error is %v, without %q", err, part)
				}
			}
		})
	}
}

func TestCoverageOfSeveralTexts(t *testing.T) {
	for want, texts := range map[quickexit.Coverage][]string{
		"":                 {" \n"},
		"default":          {" default "},
		"default,/a":       {"", "default", "/a"},
		"/a /b,default,/c": {"/a /b", "default,/c,"},
	} {
		if got := quickexit.CoverageOf(texts...); got != want {
			t.Errorf("coverage of %q is %q, want %q", texts, got, want)
		}
	}
	if got := quickexit.CoverageOf(); got != "" {
		t.Errorf("coverage of nothing is %q", got)
	}
}

func BenchmarkCoversContainer(b *testing.B) {
	for name, coverage := range map[string]quickexit.Coverage{
		"Default": "", "Few": "default,/app/server,/opt/proxy", "Many": quickexit.Coverage(strings.Repeat("/opt/some/where/program,", 1000) + "default"),
	} {
		b.Run(name, func(b *testing.B) {
			container := command("/usr/local/bin/pilot-agent")
			b.ReportAllocs()
			for b.Loop() {
				if err := quickexit.CoversContainer(coverage, &container); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
