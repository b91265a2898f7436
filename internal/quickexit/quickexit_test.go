// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

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

func command(words ...string) corev1.Container { return corev1.Container{Command: words} }

func mounted(path string, container corev1.Container) corev1.Container {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "volume", MountPath: path, SubPath: "s"})
	return container
}

func withPath(value string, container corev1.Container) corev1.Container {
	container.Env = append(container.Env, corev1.EnvVar{Name: "PATH", Value: value})
	return container
}
