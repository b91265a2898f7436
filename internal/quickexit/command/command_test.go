// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sidecar-termination/operator/internal/ociimage"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/quickexit/command"
	"github.com/sidecar-termination/operator/internal/terminal"
)

// outcome is the result of a run of the subcommand.
type outcome struct {
	stdout, stderr string
	err            error
}

func run(t *testing.T, stdin string, arguments ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	subcommand := command.New()
	subcommand.SilenceErrors, subcommand.SilenceUsage = true, true
	subcommand.SetArgs(arguments)
	subcommand.SetIn(strings.NewReader(stdin))
	subcommand.SetOut(&stdout)
	subcommand.SetErr(&stderr)
	err := subcommand.ExecuteContext(t.Context())
	return outcome{stdout.String(), stderr.String(), err}
}

// report is the part of the JSON form that users rely on.
type report struct {
	Digest    string
	Platforms []struct{ Platform, Digest string }
	Layout    string
	Archive   string
	Image     string
	Paths     []string
}

func (o outcome) report(t *testing.T) report {
	t.Helper()
	if o.err != nil {
		t.Fatal(o.err)
	}
	var result report
	if err := json.Unmarshal([]byte(o.stdout), &result); err != nil {
		t.Fatalf("%v in %s", err, o.stdout)
	}
	return result
}

func TestLayout(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "new", "layout")
	got := run(t, "", "--output", "oci:"+directory, "--path", "/opt/x", "-o", "json").report(t)
	index, err := ociimage.ReadLayout(directory)
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := index.Digest(); err != nil || digest.String() != got.Digest {
		t.Errorf("the layout has digest %s, %v, and %s was reported", digest, err, got.Digest)
	}
	if want := append(quickexit.DefaultPaths(), "/opt/x"); len(got.Paths) != len(want) || !slices.Contains(got.Paths, "/opt/x") {
		t.Errorf("paths are %v", got.Paths)
	}
	if len(got.Platforms) != 2 || got.Layout != directory || got.Archive != "" || got.Image != "" {
		t.Errorf("reported %+v", got)
	}
	again := run(t, "", "--output", "oci:"+filepath.Join(t.TempDir(), "layout"), "--path", "/opt/x", "--path", "/bin/sh", "--format=json").report(t)
	if again.Digest != got.Digest {
		t.Errorf("digests of two runs are %s and %s", got.Digest, again.Digest)
	}
}

func TestTextResult(t *testing.T) {
	got := run(t, "", "--output", "oci:"+filepath.Join(t.TempDir(), "layout"), "--no-default-paths", "--path", "/opt/x")
	if got.err != nil || got.stderr != "" {
		t.Fatalf("%v, standard error %q", got.err, got.stderr)
	}
	for _, want := range []string{"digest:    sha256:", "platforms: linux/amd64, linux/arm64\n", "paths:     2\n", "layout:    /"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("standard output has no %q:\n%s", want, got.stdout)
		}
	}
}

func TestArchive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "quick-exit.tar")
	got := run(t, "", "--output", "tar:"+file, "--platform", "linux/arm64", "--tag", "quick-exit:v1", "-o", "json").report(t)
	tag, err := name.NewTag("quick-exit:v1")
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := image.ConfigFile()
	if err != nil || configuration.Architecture != "arm64" {
		t.Errorf("the image is for %+v, %v", configuration, err)
	}
	if len(got.Platforms) != 1 || got.Platforms[0].Platform != "linux/arm64" || got.Archive != file {
		t.Errorf("reported %+v", got)
	}
}

func TestFromFile(t *testing.T) {
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [
		{name: main, command: [./main]},
		{name: proxy, command: [/opt/proxy]},
		{name: logs, command: [/shared/logs], volumeMounts: [{name: v, mountPath: /shared}]}]}}`
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	output := func() string { return "oci:" + filepath.Join(t.TempDir(), "layout") }

	all := run(t, pod, "-f", file, "--from-file", "-", "--no-default-paths", "--output", output(), "-o", "json")
	if want := []string{"/main", "/opt/proxy", "/quick-exit", "/shared/logs"}; !slices.Equal(all.report(t).Paths, want) {
		t.Errorf("paths are %v, want %v", all.report(t).Paths, want)
	}
	for _, want := range []string{
		"warning: " + file + `: Pod p: spec.containers[0]: container "main": command: "./main" is not an absolute path`,
		`warning: standard input: Pod p: spec.containers[2]: container "logs": command: /shared/logs is below the volume mounted at /shared`,
	} {
		if !strings.Contains(all.stderr, want) {
			t.Errorf("standard error has no %q:\n%s", want, all.stderr)
		}
	}

	some := run(t, pod, "-f", "-", "--container", "proxy", "--no-default-paths", "--output", output(), "-o", "json")
	if want := []string{"/opt/proxy", "/quick-exit"}; !slices.Equal(some.report(t).Paths, want) || some.stderr != "" {
		t.Errorf("paths are %v, want %v; standard error %q", some.report(t).Paths, want, some.stderr)
	}
}

func TestHostileManifestCannotControlTheTerminal(t *testing.T) {
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: "p\e]0;owned\a"}, spec: {containers: [
		{name: "main\u202e\n", command: ["\u009b2Jmain"]}, {name: proxy, command: ["/opt/\u202eproxy"]}]}}`
	for _, format := range []string{"text", "json"} {
		got := run(t, pod, "-f", "-", "--output=oci:"+filepath.Join(t.TempDir(), "layout\x1b[2J\u202e"), "-o", format)
		if got.err != nil || !strings.Contains(got.stderr, `p\u001b]0;owned\u0007`) || !strings.Contains(got.stdout, `layout\u001b[2J\u202e`) {
			t.Errorf("%s: %v\nstandard output %q\nstandard error %q", format, got.err, got.stdout, got.stderr)
		}
		if all := got.stdout + got.stderr; all != terminal.EscapeLines(all) {
			t.Errorf("%s: control characters reach the terminal: %q", format, all)
		}
	}
}

func TestForceReplacesOutput(t *testing.T) {
	directory := t.TempDir()
	layout, archive := "oci:"+filepath.Join(directory, "layout"), "tar:"+filepath.Join(directory, "archive")
	for _, output := range []string{layout, archive} {
		arguments := []string{"--platform=linux/amd64", "--output", output}
		if got := run(t, "", arguments...); got.err != nil {
			t.Fatal(got.err)
		}
		got := run(t, "", append(arguments, "--path=/opt/x")...)
		if got.err == nil || !strings.Contains(got.err.Error(), "file already exists (--force replaces it)") || got.stdout != "" {
			t.Errorf("%s again: error %v, result %q", output, got.err, got.stdout)
		}
		if got := run(t, "", append(arguments, "--path=/opt/x", "--force")...); got.err != nil {
			t.Errorf("%s by force: %v", output, got.err)
		}
	}
	index, err := ociimage.ReadLayout(filepath.Join(directory, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	if digest, _ := index.Digest(); !strings.Contains(run(t, "", "--platform=linux/amd64", "--path=/opt/x", "--output="+layout, "--force").stdout, digest.String()) {
		t.Error("the old layout was not replaced")
	}
}

func TestForceReplacesOnlyLayouts(t *testing.T) {
	directory := t.TempDir()
	keep := filepath.Join(directory, "keep")
	if err := os.WriteFile(keep, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{"oci:" + directory, "oci:" + keep, "tar:" + directory} {
		if got := run(t, "", "--platform=linux/amd64", "--force", "--output", output); got.err == nil {
			t.Errorf("%s was replaced", output)
		}
	}
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
}

func TestBadInput(t *testing.T) {
	layout := "--output=oci:" + filepath.Join(t.TempDir(), "layout")
	unreadable := "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: c, command: sh}]}\n"
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"nothing to do":          {nil, "one of --output and --push must be given"},
		"an argument":            {[]string{layout, "x"}, "x"},
		"form of output":         {[]string{"--output=zip:x"}, `--output is "zip:x"; it must be oci:DIRECTORY or tar:FILE`},
		"no form of output":      {[]string{"--output=x"}, `--output is "x"; it must be`},
		"two platforms, one tar": {[]string{"--output=tar:x"}, "add --platform linux/amd64 or --platform linux/arm64"},
		"platform":               {[]string{layout, "--platform=linux/s390x"}, `--platform is "linux/s390x"; it must be linux/amd64 or linux/arm64`},
		"format":                 {[]string{layout, "-o", "yaml"}, `--format is "yaml"; it must be text or json`},
		"tag":                    {[]string{layout, "--tag=UPPER"}, `--tag is "UPPER"`},
		"push without registry":  {[]string{"--push=quick-exit"}, `--push is "quick-exit"; it must be registry, name and tag`},
		"push of a digest":       {[]string{"--push=a.example/b@sha256:" + strings.Repeat("0", 64)}, "--push is"},
		"relative path":          {[]string{layout, "--path=sh"}, `--path: path "sh" is not absolute`},
		"path of a directory":    {[]string{layout, "--path=/bin"}, `combine the paths: "/bin" cannot be a file`},
		"no such file":           {[]string{layout, "-f", "/no/such.yaml"}, "--from-file: open the file: open /no/such.yaml"},
		"file without pods":      {[]string{layout, "-f", "/dev/null"}, "--from-file: /dev/null: it contains no Pod and no pod template"},
		"standard input twice":   {[]string{layout, "-f", "-", "-f", "-"}, "--from-file - may be given once"},
		"bad manifest":           {[]string{layout, "-f", "-"}, "--from-file: standard input: document 1: Pod: spec.containers[0]: command cannot be a string"},
		"container without file": {[]string{layout, "--container=x"}, "--container selects from the files of --from-file"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, unreadable, test.arguments...)
			if got.err == nil || !strings.Contains(got.err.Error(), test.want) || got.stdout != "" {
				t.Errorf("error is %v with result %q, want %q", got.err, got.stdout, test.want)
			}
		})
	}
}

func TestUnknownContainerIsNamed(t *testing.T) {
	pod := "{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, command: [$(X)]}]}}"
	got := run(t, pod, "-f", "-", "--container=d", "--output=oci:"+filepath.Join(t.TempDir(), "layout"))
	if got.err == nil || !strings.Contains(got.err.Error(), `--container is "d"; no file`) {
		t.Errorf("error is %v", got.err)
	}
	got = run(t, pod, "-f", "-", "--output=oci:"+filepath.Join(t.TempDir(), "layout"))
	if got.err == nil || !strings.Contains(got.err.Error(), "--container can leave a container out") {
		t.Errorf("error is %v", got.err)
	}
}
