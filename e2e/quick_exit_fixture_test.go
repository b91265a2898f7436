//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/internal/ociimage"
)

// Paths of the program in the image of realSidecar.
const (
	sidecarProgram   = "/opt/proxy/bin/proxy"
	sidecarDirectory = "/app"
	sidecarScript    = sidecarDirectory + "/server"
	sidecarCommand   = sidecarDirectory + "/bin/agent"
	// sidecarUser is the user of the image.
	sidecarUser = "1337:1337"
)

// realSidecar returns an image like those of sidecar vendors: no shell, one program, and its own user, PATH and working
// directory.
var realSidecar = sync.OnceValues(func() (v1.Image, error) {
	cluster, err := harness.Connect()
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp("", "sidecar-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	file := filepath.Join(directory, "sidecar")
	build := exec.Command("go", "build", "-o", file, "./e2e/sidecar")
	build.Dir, build.Env = cluster.Repository, append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	root := ociimage.Rootfs{
		Programs: map[string][]byte{sidecarProgram[1:]: program},
		Links:    map[string]string{sidecarScript[1:]: sidecarProgram[1:], sidecarCommand[1:]: sidecarProgram[1:]},
	}
	return root.Image(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, v1.Config{
		Entrypoint: []string{sidecarProgram},
		Cmd:        []string{"--config=/etc/proxy.yaml"},
		User:       sidecarUser,
		WorkingDir: sidecarDirectory,
		Env:        []string{"PATH=" + sidecarDirectory + "/bin:/usr/bin"},
	})
})

// pushSidecar pushes realSidecar and returns the reference.
func pushSidecar(test *harness.Test, registry *harness.Registry) string {
	test.Helper()
	image, err := realSidecar()
	if err != nil {
		test.Fatalf("Build the sidecar's image: %v", err)
	}
	return registry.Push(test.T, "sidecar:v1", image)
}

// quickExitImage is the output of subcommand quick-exit-image.
type quickExitImage struct {
	// Image is the reference with the digest.
	Image string
	// Paths are the paths of the program in the image.
	Paths []string
}

// pushQuickExit builds and pushes a quick-exit image for the Job's sidecar by subcommand quick-exit-image.
func pushQuickExit(test *harness.Test, reference string, job *batchv1.Job) quickExitImage {
	test.Helper()
	program, err := buildOperator()
	if err != nil {
		test.Fatalf("Build the operator: %v", err)
	}
	manifest := harness.ToMap(job)
	manifest["apiVersion"], manifest["kind"] = "batch/v1", "Job"
	input, err := json.Marshal(manifest)
	if err != nil {
		test.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(test.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program, "quick-exit-image", "--from-file=-", "--container="+harness.SidecarName, "--push="+reference, "-o", "json")
	var warnings bytes.Buffer
	command.Stdin, command.Stderr = bytes.NewReader(input), &warnings
	output, err := command.Output()
	if err != nil {
		test.Fatalf("quick-exit-image: %v\n%s", err, warnings.String())
	}
	var result quickExitImage
	if err := json.Unmarshal(output, &result); err != nil {
		test.Fatalf("Read the result: %v\n%s", err, output)
	}
	return result
}
