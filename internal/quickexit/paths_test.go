// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

func TestDefaultPathsAreValid(t *testing.T) {
	paths := quickexit.DefaultPaths()
	if err := quickexit.ValidatePaths(paths); err != nil {
		t.Error(err)
	}
	if !slices.IsSorted(paths) || len(slices.Compact(slices.Clone(paths))) != len(paths) {
		t.Errorf("not sorted, or not unique: %v", paths)
	}
	for _, path := range []string{quickexit.Entrypoint, "/bin/sh", "/bin/sleep", "/usr/local/bin/pilot-agent"} {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is missing", path)
		}
	}
}

func TestDefaultPathsAreCopied(t *testing.T) {
	quickexit.DefaultPaths()[0] = "/changed"
	quickexit.DefaultSidecars()[0].Paths[0] = "/changed"
	if slices.Contains(quickexit.DefaultPaths(), "/changed") {
		t.Error("a caller changed the default paths")
	}
}

func TestValidatePaths(t *testing.T) {
	for name, test := range map[string]struct {
		paths []string
		// want is part of the error; empty: none.
		want string
	}{
		"none":                {nil, ""},
		"one":                 {[]string{"/bin/sh"}, ""},
		"twice":               {[]string{"/bin/sh", "/bin/sh"}, ""},
		"common start":        {[]string{"/bin/sh", "/bin/sh-old"}, ""},
		"like a provided one": {[]string{"/device", "/etc/hosts.allow"}, ""},
		"empty":               {[]string{""}, "path is empty"},
		"relative":            {[]string{"bin/sh"}, `"bin/sh" is not absolute`},
		"the root":            {[]string{"/"}, "names a directory"},
		"a directory":         {[]string{"/bin/"}, "names a directory"},
		"not clean":           {[]string{"/bin/../sh"}, `"/bin/../sh" is not in its shortest form, "/sh"`},
		"null":                {[]string{"/a\x00"}, "null character"},
		"long":                {[]string{"/" + strings.Repeat("x", 5000)}, "longer than 4095"},
		"below another":       {[]string{"/bin/sh", "/bin"}, `"/bin" cannot be a file, because "/bin/sh" is below it`},
		"far below another":   {[]string{"/a/b/c/d", "/a"}, `"/a" cannot be a file`},
		"below the program":   {[]string{"/quick-exit/x"}, `"/quick-exit" cannot be a file`},
		"device":              {[]string{"/dev/null"}, "hidden in every container by its runtime's /dev"},
		"hosts":               {[]string{"/etc/hosts"}, "hidden in every container"},
	} {
		t.Run(name, func(t *testing.T) {
			err := quickexit.ValidatePaths(test.paths)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}
