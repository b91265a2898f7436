// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

// doubling returns a container with 30 variables. Each contains the previous one twice.
func doubling(words ...string) corev1.Container {
	container := with(command(words...), "V0", "xx")
	for i := range 30 {
		container = with(container, fmt.Sprintf("V%d", i+1), fmt.Sprintf("$(V%d)$(V%d)", i, i))
	}
	return container
}

// chained returns a container whose variables each refer to the previous one.
func chained(variables int, words ...string) corev1.Container {
	container := with(command(words...), "V0", "/bin/sh")
	for i := range variables - 1 {
		container = with(container, fmt.Sprintf("V%d", i+1), fmt.Sprintf("$(V%d)", i))
	}
	return container
}

func manyMounts(count int, container corev1.Container) corev1.Container {
	for i := range count {
		container = mounted(fmt.Sprintf("/data/%d", i), container)
	}
	return container
}

func TestExpansionLimits(t *testing.T) {
	for name, test := range map[string]struct {
		container corev1.Container
		// wantError is empty if the container is within the limits and its command is covered.
		wantError string
	}{
		"30 doublings in the command":       {doubling("$(V30)"), "variables expand to more than 65536 bytes"},
		"30 unused doublings":               {doubling("sh"), ""},
		"30 doublings in PATH":              {with(doubling("sh"), "PATH", "$(V30):/bin"), "expand variable PATH: variables expand to more than 65536 bytes"},
		"empty doublings":                   {with(doubling("/bin/$(V30)sh"), "V0", ""), "variables expand to more than"},
		"64 variables with PATH":            {chained(63, "$(V62)"), ""},
		"65 variables with PATH":            {chained(64, "$(V63)"), "it refers to more than 64 variables"},
		"a command of 4095 bytes":           {command("/bin" + strings.Repeat("/", 4088) + "sh"), ""},
		"a command of 4096 bytes":           {command("/bin" + strings.Repeat("/", 4090) + "sh"), "longer than 4095 bytes"},
		"a command that expands too far":    {with(command("/$(A)$(A)"), "A", strings.Repeat("a", 2100)), "it becomes longer than 4095 bytes"},
		"a value of 16 KiB":                 {with(command("sh"), "PATH", "/bin"+strings.Repeat(":", 16<<10-4)), ""},
		"a longer value":                    {with(command("sh"), "PATH", "/bin"+strings.Repeat(":", 16<<10-3)), "variable PATH is longer than 16384 bytes"},
		"a long unused value":               {with(command("sh"), "SCRIPT", strings.Repeat("x", 1<<20)), ""},
		"64 directories":                    {with(command("sh"), "PATH", strings.Repeat("/a:", 63)+"/bin"), ""},
		"65 directories":                    {with(command("sh"), "PATH", strings.Repeat("/a:", 64)+"/bin"), "it has more than 64 directories"},
		"a file name of 256 bytes":          {command(strings.Repeat("x", 256)), "file name of more than 255 bytes"},
		"a directory as the command":        {command(".."), "is a directory"},
		"a long working directory":          {inDirectory("/"+strings.Repeat("d", 4095), command("./sh")), "working directory is longer than 4095 bytes"},
		"10000 mounts":                      {manyMounts(10_000, command("sh")), ""},
		"64 mounts and a variable":          {manyMounts(64, with(command("$(SH)"), "SH", "/bin/sh")), ""},
		"65 mounts and a variable":          {manyMounts(65, with(command("$(SH)"), "SH", "/bin/sh")), "mounts more than 64 volumes"},
		"65 mounts and a variable in PATH":  {manyMounts(65, with(command("sh"), "BIN", "/bin", "PATH", "$(BIN)")), "mounts more than 64 volumes"},
		"a long name is cut in the message": {command("$(" + strings.Repeat("N", 500) + ")"), strings.Repeat("N", 77) + "... is not in"},
		"references that do not end":        {with(command("sh"), "PATH", strings.Repeat("$(", 8<<10)), "it has no absolute directory"},
	} {
		t.Run(name, func(t *testing.T) {
			trimmed := quickexit.Trim(&test.container, nothing)
			for of, container := range map[string]*corev1.Container{"full": &test.container, "trimmed": &trimmed} {
				err := quickexit.CoversContainer(quickexit.CoverageOf("/bin/sh", "/a/sh"), container)
				switch {
				case test.wantError == "" && err != nil:
					t.Errorf("%s container: %.300v", of, err)
				case test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)):
					t.Errorf("%s container: error is %.300v, want one with %q", of, err, test.wantError)
				}
			}
		})
	}
}
