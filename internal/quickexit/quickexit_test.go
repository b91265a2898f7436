// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

func TestCoversContainer(t *testing.T) {
	coverage := quickexit.CoverageOf("/bin/sh", "/usr/local/bin/fluent-bit", "/a$b")
	long := "/" + strings.Repeat("x", 1024)
	for name, test := range map[string]struct {
		container corev1.Container
		// wantError is part of the error; empty: covered.
		wantError string
	}{
		"no command":               {},
		"only arguments":           {container: corev1.Container{Args: []string{"/daprd"}}},
		"the entrypoint":           {container: command("/quick-exit")},
		"a path":                   {container: command("/bin/sh", "-c", "sleep 1d")},
		"a path with own PATH":     {container: withPath("/opt", command("/bin/sh"))},
		"in PATH":                  {container: command("fluent-bit")},
		"mounted below":            {container: mounted("/bin/sh/shared", command("/bin/sh"))},
		"mounted beside":           {container: mounted("/bin/shared", command("/bin/sh"))},
		"mounted later in PATH":    {container: mounted("/usr/bin", command("fluent-bit"))},
		"another path":             {container: command("/usr/bin/sh"), wantError: "does not have /usr/bin/sh"},
		"another name":             {container: command("server"), wantError: "does not have /usr/local/bin/server"},
		"a directory of a path":    {container: command("/bin"), wantError: "does not have /bin"},
		"own PATH":                 {container: withPath("/usr/local/bin", command("fluent-bit")), wantError: `"fluent-bit" depends on the container's own PATH`},
		"not clean":                {container: command("/usr/../bin//sh"), wantError: "not in its shortest form"},
		"of the runtime":           {container: command("/proc/self/exe"), wantError: "hidden in every container"},
		"relative":                 {container: command("./sh"), wantError: `"./sh" is not an absolute path`},
		"empty":                    {container: command(""), wantError: "not an absolute path"},
		"a variable":               {container: command("$(SHELL)"), wantError: `"$(SHELL)" may refer to a variable`},
		"a dollar that is listed":  {container: command("/a$b"), wantError: "may refer to a variable"},
		"too long":                 {container: command(long), wantError: "longer than 1024 bytes"},
		"mounted above":            {container: mounted("/bin/", command("/bin/sh")), wantError: "/bin/sh is hidden by what is mounted at /bin/"},
		"mounted over":             {container: mounted("/bin/sh", command("/bin/sh")), wantError: "hidden by what is mounted at /bin/sh"},
		"mounted at root":          {container: mounted("/", command("/bin/sh")), wantError: "hidden"},
		"mounted not clean":        {container: mounted("/usr/..//bin/.", command("/bin/sh")), wantError: "hidden"},
		"mounted at relative path": {container: mounted("bin", command("/bin/sh")), wantError: "hidden"},
		"mounted above all":        {container: mounted("../..", command("/bin/sh")), wantError: "hidden"},
		"mounted over entrypoint":  {container: mounted("/quick-exit", corev1.Container{}), wantError: "hidden"},
		"mounted earlier in PATH":  {container: mounted("/usr/local/sbin", command("fluent-bit")), wantError: "/usr/local/sbin/fluent-bit is hidden"},
		"a device":                 {container: corev1.Container{Command: []string{"/bin/sh"}, VolumeDevices: []corev1.VolumeDevice{{DevicePath: "/bin/sh"}}}, wantError: "hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			err := quickexit.CoversContainer(coverage, &test.container)
			switch {
			case test.wantError == "" && err != nil:
				t.Errorf("not covered: %v", err)
			case test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)):
				t.Errorf("error is %v, want one with %q", err, test.wantError)
			}
			if err := quickexit.CoversContainer(quickexit.CoverageOf(quickexit.Everything), &test.container); err != nil {
				t.Errorf("an image that covers every command does not: %v", err)
			}
			checkTrim(t, test.container)
		})
	}
}

// The commands that the sidecars' own injectors and charts use.
func TestDefaultPathsCoverWellKnownCommands(t *testing.T) {
	for _, words := range [][]string{
		nil,
		{"sh", "-c", "sleep infinity"},
		{"/bin/bash", "-ec"},
		{"/usr/bin/env", "fluent-bit"},
		{"/usr/local/bin/pilot-agent", "proxy", "sidecar"},
		{"pilot-agent", "wait"},
		{"envoy", "-c", "/etc/envoy.yaml"},
		{"/usr/lib/linkerd/linkerd-await", "--timeout=2m"},
		{"/fluent-bit/bin/fluent-bit"},
		{"vault", "agent"},
		{"/cloud-sql-proxy"},
		{"/daprd"},
		{"dumb-init", "--"},
		{"tini", "--"},
	} {
		container := command(words...)
		if err := quickexit.CoversContainer(quickexit.CoverageOf(quickexit.Default), &container); err != nil {
			t.Errorf("%q is not covered: %v", words, err)
		}
	}
	if unknown := command("/opt/own/proxy"); quickexit.CoversContainer(quickexit.CoverageOf(quickexit.Default), &unknown) == nil {
		t.Error("an unknown command is covered")
	}
}

func TestDefaultPathsAreValid(t *testing.T) {
	paths := quickexit.DefaultPaths()
	if err := quickexit.ValidateEntries(paths); err != nil {
		t.Error(err)
	}
	if !slices.IsSorted(paths) || len(slices.Compact(slices.Clone(paths))) != len(paths) || !slices.Contains(paths, quickexit.Entrypoint) {
		t.Errorf("not sorted, not unique or without the entrypoint: %v", paths)
	}
	for _, name := range paths {
		if slices.ContainsFunc(paths, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
			t.Errorf("%s cannot be a file and a directory", name)
		}
	}
	quickexit.DefaultPaths()[0] = "/changed"
	if slices.Contains(quickexit.DefaultPaths(), "/changed") {
		t.Error("a caller changed the default paths")
	}
}

func TestDocumentationListsTheDefaultPaths(t *testing.T) {
	content, err := os.ReadFile("../../docs/quick-exit-image.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(text string) bool { return strings.Contains(string(content), "`"+text+"`") }
	for _, name := range quickexit.DefaultPaths() {
		if !quoted(name) && !quoted(path.Base(name)) {
			t.Errorf("docs/quick-exit-image.md does not have %s", name)
		}
	}
	if !strings.Contains(string(content), quickexit.SearchPath) || !strings.Contains(string(content), quickexit.User) {
		t.Error("docs/quick-exit-image.md names another PATH or user")
	}
}

func TestTrim(t *testing.T) {
	full := mounted("/data", mounted("/usr/bin", withPath("/opt", corev1.Container{Name: "c", Image: "i", WorkingDir: "/app"})))
	full.Env = append(full.Env, corev1.EnvVar{Name: "SECRET", Value: "hunter2"})
	for name, test := range map[string]struct {
		words []string
		want  corev1.Container
	}{
		"no command":          {nil, corev1.Container{}},
		"a path":              {[]string{"/bin/sh", "-c", "a long script"}, command("/bin/sh")},
		"a path below volume": {[]string{"/usr/bin/sh", "-c"}, corev1.Container{Command: []string{"/usr/bin/sh"}, VolumeMounts: []corev1.VolumeMount{{MountPath: "/usr/bin"}}}},
		"a relative path":     {[]string{"./run", "now"}, command("./run")},
		"a name":              {[]string{"run", "now"}, corev1.Container{Command: []string{"run"}, Env: []corev1.EnvVar{{Name: "PATH"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			full.Command = test.words
			if diff := cmp.Diff(test.want, quickexit.Trim(&full)); diff != "" {
				t.Errorf("trimmed container (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzTrim makes containers of arbitrary texts, with up to thousands of mounts.
func FuzzTrim(f *testing.F) {
	f.Add("/bin/sh", "", "/data", "/dev/xvda", uint16(0), uint16(0))
	f.Add("sh", "/opt/bin", "bin", "/usr/..", uint16(0), uint16(300))
	f.Add("/a/../b", "", "//", "", uint16(1020), uint16(5))
	f.Add("$(SHELL)", "$(PATH)", "/quick-exit", ".", uint16(9), uint16(0))
	f.Fuzz(func(t *testing.T, word, search, mount, device string, padding, mounts uint16) {
		container := command(word+strings.Repeat("w", int(padding)), "-c")
		if search != "" {
			container = withPath(search, container)
		}
		for i := range mounts {
			container = mounted(fmt.Sprintf("/m%d/../%s", i, search), container)
		}
		container = mounted(mount, container)
		container.VolumeDevices = []corev1.VolumeDevice{{DevicePath: device}}
		checkTrim(t, container)
	})
}

// checkTrim fails unless every coverage gives the same result for the trimmed container as for the full one. Trimming again must
// change nothing, and Trim must not modify its argument.
func checkTrim(t *testing.T, container corev1.Container) {
	t.Helper()
	before := container.DeepCopy()
	trimmed := quickexit.Trim(&container)
	for _, entries := range [][]string{nil, {"*"}, {"/a"}, {"/a/b", "/bin/sh"}, {"/quick-exit"}, {"x"}} {
		coverage := quickexit.CoverageOf(entries...)
		full, got := quickexit.CoversContainer(coverage, &container), quickexit.CoversContainer(coverage, &trimmed)
		if fmt.Sprint(full) != fmt.Sprint(got) {
			t.Errorf("coverage %q: %v for the full container, %v for the trimmed one\nfull %+v\ntrimmed %+v", coverage, full, got, container, trimmed)
		}
	}
	if diff := cmp.Diff(trimmed, quickexit.Trim(&trimmed)); diff != "" {
		t.Errorf("trimming twice is not trimming once:\n%s", diff)
	}
	if diff := cmp.Diff(before, &container); diff != "" {
		t.Errorf("the container was changed:\n%s", diff)
	}
}

func command(words ...string) corev1.Container { return corev1.Container{Command: words} }

func mounted(path string, container corev1.Container) corev1.Container {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "volume", MountPath: path, SubPath: "s"})
	return container
}

func withPath(value string, container corev1.Container) corev1.Container {
	container.Env = append(container.Env, corev1.EnvVar{Name: "PATH", Value: value})
	return container
}
