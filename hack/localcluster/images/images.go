// SPDX-License-Identifier: Apache-2.0

// Package images makes the container images of the project and of the local cluster without a container engine.
package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/settings"
)

// References of the images that every cluster has.
const (
	PauseReference     = "localhost/pause:1"
	BusyboxReference   = "localhost/busybox:1"
	QuickExitReference = "localhost/quick-exit:1"
	// OperatorRepository is the operator's image without a tag.
	OperatorRepository = "localhost/sidecar-termination-operator"
)

const searchPath = "PATH=" + quickexit.SearchPath

// Compile builds the package at the path in the module's directory for a platform. The program is static and reproducible: the same
// sources and Go version give the same bytes on every machine.
func Compile(ctx context.Context, module, path string, platform v1.Platform) (program []byte, err error) {
	directory, err := os.MkdirTemp("", "operator-")
	if err != nil {
		return nil, fmt.Errorf("create a build directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	file := filepath.Join(directory, "program")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", file, path)
	command.Dir = module
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile %s for %s: %w\n%s", path, platform, err, output)
	}
	return os.ReadFile(file)
}

// Pause builds the image of pod sandboxes from the repository.
func Pause(ctx context.Context, repository string, platform v1.Platform) (v1.Image, error) {
	program, err := Compile(ctx, repository, "./hack/localcluster/images/pause", platform)
	if err != nil {
		return nil, err
	}
	return ociimage.Rootfs{Programs: map[string][]byte{"pause": program}}.Image(platform, v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"})
}

// Operator builds the operator's image from the repository.
func Operator(ctx context.Context, repository string, platform v1.Platform) (v1.Image, error) {
	const binary = settings.Name
	program, err := Compile(ctx, repository, ".", platform)
	if err != nil {
		return nil, err
	}
	return ociimage.Rootfs{Programs: map[string][]byte{binary: program}, Directories: map[string]int64{"tmp": 0o1777}}.Image(platform,
		v1.Config{
			Entrypoint: []string{"/" + binary}, User: "65532:65532", Env: []string{searchPath},
			Labels: labels(binary, "Ends sidecar containers once the main containers of a Job-type pod are done"),
		})
}

// labels are the labels of an image of this project, which registries show.
func labels(title, description string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       title,
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.source":      "https://github.com/sidecar-termination/operator",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     settings.Release,
	}
}

// QuickExit builds the quick-exit image from the repository: the program at its entrypoint, and hard links to it at the default paths and
// at further ones.
func QuickExit(ctx context.Context, repository string, platform v1.Platform, further ...string) (v1.Image, error) {
	program, err := Compile(ctx, repository, "./hack/localcluster/images/quickexit", platform)
	if err != nil {
		return nil, err
	}
	relative := func(path string) string { return strings.TrimPrefix(path, "/") }
	root := ociimage.Rootfs{Programs: map[string][]byte{relative(quickexit.Entrypoint): program}, Links: map[string]string{}}
	for _, path := range append(quickexit.DefaultPaths(), further...) {
		if path != quickexit.Entrypoint {
			root.Links[relative(path)] = relative(quickexit.Entrypoint)
		}
	}
	return root.Image(platform, v1.Config{
		Entrypoint: []string{quickexit.Entrypoint}, User: quickexit.User, Env: []string{searchPath}, WorkingDir: "/",
		Labels: labels("quick-exit", "Exits with 0 at once, whatever the command is"),
	})
}

// Program returns an image with a program of others as its entrypoint.
func Program(program []byte, name string, platform v1.Platform) (v1.Image, error) {
	return ociimage.Rootfs{Programs: map[string][]byte{"bin/" + name: program}, Directories: map[string]int64{"tmp": 0o1777}}.Image(platform,
		v1.Config{Entrypoint: []string{name}, Env: []string{searchPath}})
}

// Busybox returns an image in which each applet is a hard link to the static program.
func Busybox(program []byte, applets []string, platform v1.Platform) (v1.Image, error) {
	root := ociimage.Rootfs{
		Programs:    map[string][]byte{"bin/busybox": program},
		Links:       map[string]string{},
		Directories: map[string]int64{"tmp": 0o1777, "root": 0o700, "proc": 0o755, "dev": 0o755, "sys": 0o755, "var/run": 0o755},
		Texts: map[string]string{
			"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
			"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
		},
	}
	for _, applet := range applets {
		if target := path.Join("bin", applet); applet != "busybox" {
			root.Links[target] = "bin/busybox"
		}
	}
	return root.Image(platform, v1.Config{Cmd: []string{"sh"}, Env: []string{searchPath}})
}
