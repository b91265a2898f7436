//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/e2e/harness"
	clusterimages "github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/program"
	"github.com/sidecar-termination/operator/internal/quickexit"
)

// Paths of the program in the image of realSidecar.
const (
	sidecarProgram   = "/opt/proxy/bin/proxy"
	sidecarDirectory = "/app"
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
		Links:    map[string]string{sidecarCommand[1:]: sidecarProgram[1:]},
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

// coveredCommands are the paths at which the image of pushQuickExit has the program, besides the default paths.
var coveredCommands = []string{sidecarProgram, "/usr/local/bin/agent"}

// pushQuickExit pushes a quick-exit image with coveredCommands and returns the reference.
func pushQuickExit(test *harness.Test, registry *harness.Registry, tag string) string {
	test.Helper()
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	compiled, err := program.Compile(test.Context(), test.Repository, clusterimages.QuickExitProgram, platform)
	if err != nil {
		test.Fatal(err)
	}
	image, err := clusterimages.QuickExit(compiled, slices.Concat(quickexit.DefaultPaths(), coveredCommands), platform)
	if err != nil {
		test.Fatal(err)
	}
	return registry.Push(test.T, tag, image)
}
