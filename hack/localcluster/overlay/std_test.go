// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// build compiles the source with the replacements, and returns the program.
func build(t *testing.T, directory string, replacements Replacements, source string) string {
	t.Helper()
	path := func(name string) string { return filepath.Join(directory, name) }
	argument, err := replacements.Write(path("overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	compile := exec.CommandContext(t.Context(), "go", "build", "-trimpath", argument, "-o", path("program"), "main.go")
	compile.Dir = directory
	compile.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if output, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	return path("program")
}

func TestLoopback(t *testing.T) {
	directory := t.TempDir()
	replacements := Replacements{}
	if err := replacements.AddLoopback(t.Context(), directory); err != nil {
		t.Fatal(err)
	}
	program := build(t, directory, replacements, `package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	fmt.Println(listener.Addr(), err)
}
`)
	for address, want := range map[string]string{":0": "127.0.0.1:", "127.0.0.2:0": "127.0.0.2:"} {
		output, err := exec.CommandContext(t.Context(), program, address).Output()
		if err != nil || !strings.HasPrefix(string(output), want) {
			t.Errorf("the program listens on %q (%v), want %s", output, err, want)
		}
	}
}
