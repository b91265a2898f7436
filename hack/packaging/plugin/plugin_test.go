// SPDX-License-Identifier: Apache-2.0

//go:build packaging

package plugin_test

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/packaging/plugin"
)

const repository = "../../.."

func TestArchivesAreForUsersOfKubectl(t *testing.T) {
	want := []string{
		"kubectl-sidecar_termination-darwin-amd64.tar.gz",
		"kubectl-sidecar_termination-darwin-arm64.tar.gz",
		"kubectl-sidecar_termination-linux-amd64.tar.gz",
		"kubectl-sidecar_termination-linux-arm64.tar.gz",
		"kubectl-sidecar_termination-windows-amd64.zip",
	}
	var got []string
	for _, platform := range plugin.Platforms() {
		got = append(got, plugin.FileName(platform))
	}
	if !slices.Equal(got, want) {
		t.Errorf("archives are %v, want %v", got, want)
	}
}

// The place of the sources is not in the archives. Each has a program of its platform.
func TestArchivesAreReproducible(t *testing.T) {
	isELF := func(program io.ReaderAt) error { _, err := elf.NewFile(program); return err }
	isMachO := func(program io.ReaderAt) error { _, err := macho.NewFile(program); return err }
	isPE := func(program io.ReaderAt) error { _, err := pe.NewFile(program); return err }
	formats := map[string]func(io.ReaderAt) error{"linux": isELF, "darwin": isMachO, "windows": isPE}
	platforms := []v1.Platform{
		{OS: "linux", Architecture: "arm64"}, {OS: "darwin", Architecture: "arm64"}, {OS: "windows", Architecture: "amd64"},
	}
	first, second := archives(t, module(t), platforms), archives(t, module(t), platforms)
	for _, platform := range platforms {
		name := plugin.FileName(platform)
		if len(first[name]) == 0 || !bytes.Equal(first[name], second[name]) {
			t.Errorf("%s differs in the second build", name)
		}
		directory := unpack(t, name, first[name])
		file := filepath.Join(directory, plugin.Program)
		if platform.OS == "windows" {
			file += ".exe"
		}
		program, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := formats[platform.OS](program); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = program.Close()
		if license, err := os.ReadFile(filepath.Join(directory, plugin.License)); err != nil || string(license) != "licence\n" {
			t.Errorf("%s has the licence %q, %v", name, license, err)
		}
	}
}

func TestWindowsAsksTheProgramForCompletions(t *testing.T) {
	platform := v1.Platform{OS: "windows", Architecture: "amd64"}
	name := plugin.FileName(platform)
	directory := unpack(t, name, archives(t, module(t), []v1.Platform{platform})[name])
	script, err := os.ReadFile(filepath.Join(directory, plugin.Completion+".cmd"))
	if err != nil || string(script) != "@\"%~dp0kubectl-sidecar_termination.exe\" __complete %*\r\n" {
		t.Errorf("the script is %q, %v", script, err)
	}
}

// What is unpacked to a directory of PATH is a plugin of kubectl, with completions.
func TestKubectlFindsThePlugin(t *testing.T) {
	platform := v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	name := plugin.FileName(platform)
	directory := unpack(t, name, archives(t, repository, []v1.Platform{platform})[name])
	t.Setenv("PATH", directory+string(os.PathListSeparator)+os.Getenv("PATH"))
	// A test must not reach a cluster that happens to be there.
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	manifest, err := filepath.Abs(filepath.Join(repository, "testdata", "cli", "nightly.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const explained, completed = "MayHang: container vault-agent", "explain"

	t.Run("by its own names", func(t *testing.T) {
		requireOutput(t, 1, explained, plugin.Program, "explain", "-f", manifest)
		requireOutput(t, 0, completed, plugin.Completion, "expl")
		requireOutput(t, 0, "--quick-exit-image", plugin.Operator, "--help")
	})
	t.Run("by kubectl", func(t *testing.T) {
		if _, err := exec.LookPath("kubectl"); err != nil {
			t.Skip("there is no kubectl on this machine")
		}
		requireOutput(t, 1, explained, "kubectl", "sidecar-termination", "explain", "-f", manifest)
		requireOutput(t, 0, completed, "kubectl", "__complete", "sidecar-termination", "expl")
		requireOutput(t, 0, plugin.Program, "kubectl", "plugin", "list")
	})
}

func requireOutput(t *testing.T, code int, part, name string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, arguments...)
	output, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatalf("run %s: %v", name, err)
	}
	if got := command.ProcessState.ExitCode(); got != code || !strings.Contains(string(output), part) {
		t.Errorf("%s %s: exit code %d, want %d and %q in\n%s", name, strings.Join(arguments, " "), got, code, part, output)
	}
}

// module returns another directory at each call, with a module whose program is compiled in seconds.
func module(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	if err := os.CopyFS(directory, os.DirFS(filepath.Join("..", "testdata", "program"))); err != nil {
		t.Fatal(err)
	}
	return directory
}

func archives(t *testing.T, directory string, platforms []v1.Platform) map[string][]byte {
	t.Helper()
	built, err := plugin.Archives(t.Context(), directory, platforms)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// unpack unpacks an archive with the programs that users have.
func unpack(t *testing.T, name string, content []byte) string {
	t.Helper()
	directory, file := t.TempDir(), filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".zip") {
		unzip(t, directory, content)
		return directory
	}
	if output, err := exec.CommandContext(t.Context(), "tar", "-xzf", file, "-C", directory).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", name, err, output)
	}
	return directory
}

func unzip(t *testing.T, directory string, content []byte) {
	t.Helper()
	reader, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(directory, reader); err != nil {
		t.Fatal(err)
	}
}
