// SPDX-License-Identifier: Apache-2.0

// Package images makes the container images of the local cluster without a container
// engine.
package images

import (
	"path"
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

// QuickExitProgram is the path of the quick-exit image's program in the repository.
const QuickExitProgram = "./hack/localcluster/images/quickexit"

// Pause returns the image of pod sandboxes.
func Pause(program []byte, platform v1.Platform) (v1.Image, error) {
	return ociimage.Rootfs{Programs: map[string][]byte{"pause": program}}.Image(platform, v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"})
}

// Operator returns the operator's image.
func Operator(program []byte, platform v1.Platform) (v1.Image, error) {
	const binary = settings.Name
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

// QuickExit returns the quick-exit image: the program at its entrypoint, and hard links to it at the paths.
func QuickExit(program []byte, paths []string, platform v1.Platform) (v1.Image, error) {
	relative := func(path string) string { return strings.TrimPrefix(path, "/") }
	root := ociimage.Rootfs{Programs: map[string][]byte{relative(quickexit.Entrypoint): program}, Links: map[string]string{}}
	for _, path := range paths {
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
