// SPDX-License-Identifier: Apache-2.0

//go:build linux

package program_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sidecar-termination/operator/internal/quickexit/program"
)

// arguments are difficult command lines.
var arguments = map[string][]string{
	"none":         nil,
	"shell form":   {"-c", "exit 3"},
	"empty ones":   {"", "", ""},
	"flags":        {"--help", "-x", "--", "--version=1"},
	"not text":     {"\xff\xfe", "\n", "$(false)"},
	"many":         strings.Fields(strings.Repeat("argument ", 10000)),
	"one long one": {strings.Repeat("x", 100_000)},
}

func TestProgramsExitWithZero(t *testing.T) {
	for _, architecture := range program.Architectures() {
		t.Run(architecture, func(t *testing.T) {
			file := install(t, t.TempDir(), architecture)
			emulator := emulatorFor(t, architecture)
			for name, list := range arguments {
				command := exec.CommandContext(t.Context(), file, list...)
				if emulator != "" {
					command = exec.CommandContext(t.Context(), emulator, append([]string{file}, list...)...)
				}
				expectSilentSuccess(t, name, command)
			}
		})
	}
}

func TestProgramRunsUnprivilegedAndAlone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root may change the root directory and the user")
	}
	root := t.TempDir()
	install(t, root, runtime.GOARCH)
	command := exec.CommandContext(t.Context(), "/program", "--flag", "")
	command.Env = []string{}
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     root,
		Credential: &syscall.Credential{Uid: 65532, Gid: 65532},
	}
	expectSilentSuccess(t, "as another user, alone in its file system", command)
}

func TestProgramRunsOnReadOnlyFileSystem(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root may mount")
	}
	root := t.TempDir()
	install(t, root, runtime.GOARCH)
	if err := syscall.Mount(root, root, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("skipped: this machine does not let root mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(root, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	const flags = syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY | syscall.MS_NOSUID | syscall.MS_NODEV
	if err := syscall.Mount("", root, "", flags, ""); err != nil {
		t.Fatalf("make the mount read-only: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "other"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Fatalf("the file system is not read-only: %v", err)
	}
	command := exec.CommandContext(t.Context(), "/program", "-c", "exit 3")
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	expectSilentSuccess(t, "read-only", command)
}

// install writes the program, executable by all, and returns its path.
func install(t *testing.T, directory, architecture string) string {
	t.Helper()
	// Only its user may read a test's directory.
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(directory, "program")
	if err := os.WriteFile(file, assemble(t, architecture), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// emulatorFor returns the emulator for programs of another architecture, or nothing for the native one. It skips the test if the
// emulator is missing.
func emulatorFor(t *testing.T, architecture string) string {
	t.Helper()
	if architecture == runtime.GOARCH {
		return ""
	}
	emulator := map[string]string{"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}[architecture]
	for _, name := range []string{emulator + "-static", emulator} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("skipped: programs for %s do not run here, and there is no %s (package qemu-user-static)", architecture, emulator)
	return ""
}

func expectSilentSuccess(t *testing.T, name string, command *exec.Cmd) {
	t.Helper()
	output, err := command.CombinedOutput()
	if err != nil || len(output) > 0 {
		t.Errorf("%s: %v, output %q; want exit code 0 and no output", name, err, output)
	}
}
