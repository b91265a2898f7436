// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

func TestCandidates(t *testing.T) {
	fromField := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
	for name, test := range map[string]struct {
		container corev1.Container
		want      []string
		wantError string
	}{
		"absolute":        {container: command("/bin/sh", "-c"), want: []string{"/bin/sh"}},
		"not clean":       {container: command("/usr/../bin//sh"), want: []string{"/bin/sh"}},
		"in PATH":         {container: command("x"), want: []string{"/usr/local/sbin/x", "/usr/local/bin/x", "/usr/sbin/x", "/usr/bin/x", "/sbin/x", "/bin/x"}},
		"in own PATH":     {container: with(command("x"), "PATH", "/opt/bin:relative::/bin/"), want: []string{"/opt/bin/x", "/bin/x"}},
		"extended PATH":   {container: with(command("x"), "BASE", "/opt", "PATH", "$(BASE)/bin"), want: []string{"/opt/bin/x"}},
		"last PATH":       {container: with(command("x"), "PATH", "/a", "PATH", "/b"), want: []string{"/b/x"}},
		"working dir":     {container: inDirectory("/app", command("./bin/x")), want: []string{"/app/bin/x"}},
		"no working dir":  {container: command("./x"), want: []string{"/x"}},
		"variable":        {container: with(command("$(HOME)/x"), "HOME", "/home/y"), want: []string{"/home/y/x"}},
		"escaped":         {container: command("/a/$$(x)"), want: []string{"/a/$(x)"}},
		"lone dollars":    {container: command("/a/$x$(y"), want: []string{"/a/$x$(y"}},
		"no command":      {wantError: "command is empty"},
		"empty word":      {container: command(""), wantError: "empty word"},
		"no such":         {container: command("$(HOME)/x"), wantError: "variable HOME is not in the container's env"},
		"elsewhere":       {container: withSource(command("$(HOME)/x"), "HOME", fromField), wantError: "variable HOME gets its value from another object"},
		"unknown PATH":    {container: withSource(command("x"), "PATH", fromField), wantError: "variable PATH gets its value from another object"},
		"unknown in PATH": {container: with(command("x"), "PATH", "$(X):/bin"), wantError: "expand variable PATH: variable X"},
		"empty PATH":      {container: with(command("x"), "PATH", ""), wantError: "no absolute directory"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := quickexit.Candidates(&test.container, test.container.Command)
			switch {
			case test.wantError == "" && (err != nil || !slices.Equal(got, test.want)):
				t.Errorf("candidates are %v, %v; want %v", got, err, test.want)
			case test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)):
				t.Errorf("error is %v, want one with %q", err, test.wantError)
			}
		})
	}
}

func TestCoversContainer(t *testing.T) {
	paths := []string{"/bin/sh", "/usr/local/bin/fluent-bit"}
	for name, test := range map[string]struct {
		container corev1.Container
		wantError string
	}{
		"no command":        {},
		"only arguments":    {container: corev1.Container{Args: []string{"/daprd"}}},
		"the entrypoint":    {container: command("/quick-exit")},
		"a path":            {container: command("/bin/sh", "-c", "sleep 1d")},
		"in PATH":           {container: command("fluent-bit")},
		"mounted elsewhere": {container: mounted("/bin/shared", command("/bin/sh"))},
		"mounted in PATH":   {container: mounted("/usr/bin", command("fluent-bit"))},
		"another path":      {container: command("/usr/bin/sh"), wantError: "does not have /usr/bin/sh"},
		"another PATH":      {container: with(command("sh"), "PATH", "/opt"), wantError: "does not have /opt/sh"},
		"mounted above":     {container: mounted("/bin/", command("/bin/sh")), wantError: "/bin/sh is hidden by what is mounted at /bin/"},
		"mounted over":      {container: mounted("/bin/sh", command("/bin/sh")), wantError: "hidden"},
		"mounted at root":   {container: mounted("/", command("/bin/sh")), wantError: "hidden"},
		"relative mount":    {container: mounted("bin", command("/bin/sh")), wantError: "hidden"},
		"entrypoint over":   {container: mounted("/quick-exit", corev1.Container{}), wantError: "hidden"},
		"mounted earlier":   {container: mounted("/usr/local/sbin", command("fluent-bit")), wantError: "/usr/local/sbin/fluent-bit is hidden"},
		"cannot be known":   {container: command("$(X)"), wantError: "variable X"},
		"a directory of a":  {container: command("/bin"), wantError: "does not have /bin"},
	} {
		t.Run(name, func(t *testing.T) {
			err := quickexit.CoversContainer(quickexit.CoverageOf(paths...), &test.container)
			switch {
			case test.wantError == "" && err != nil:
				t.Errorf("not covered: %v", err)
			case test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)):
				t.Errorf("error is %v, want one with %q", err, test.wantError)
			}
			if got := quickexit.PathsCoverContainer(paths, &test.container); fmt.Sprint(got) != fmt.Sprint(err) {
				t.Errorf("with a list of paths the error is %v, want %v", got, err)
			}
			if err := quickexit.CoversContainer(quickexit.CoverageOf(quickexit.Everything), &test.container); err != nil {
				t.Errorf("an image that covers every command does not: %v", err)
			}
		})
	}
}

func TestMissingPathIsWhereToLink(t *testing.T) {
	for name, test := range map[string]struct {
		container corev1.Container
		want      string
	}{
		"of a path":           {command("/app/server"), "/app/server"},
		"of a name":           {command("server"), "/usr/local/bin/server"},
		"of a name elsewhere": {with(command("server"), "PATH", "/a:/b"), "/a/server"},
	} {
		t.Run(name, func(t *testing.T) {
			var missing *quickexit.MissingError
			err := quickexit.CoversContainer(quickexit.Coverage{}, &test.container)
			if !errors.As(err, &missing) || missing.Wanted() != test.want {
				t.Errorf("error is %v, want one about %s", err, test.want)
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

func command(words ...string) corev1.Container { return corev1.Container{Command: words} }

func inDirectory(directory string, container corev1.Container) corev1.Container {
	container.WorkingDir = directory
	return container
}

func mounted(path string, container corev1.Container) corev1.Container {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "volume", MountPath: path})
	return container
}

func with(container corev1.Container, namesAndValues ...string) corev1.Container {
	for pair := range slices.Chunk(namesAndValues, 2) {
		container.Env = append(container.Env, corev1.EnvVar{Name: pair[0], Value: pair[1]})
	}
	return container
}

func withSource(container corev1.Container, name string, source *corev1.EnvVarSource) corev1.Container {
	container.Env = append(container.Env, corev1.EnvVar{Name: name, ValueFrom: source})
	return container
}
