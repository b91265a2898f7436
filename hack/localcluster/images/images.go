// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// References of the images that every cluster has.
const (
	PauseReference     = "localhost/pause:1"
	BusyboxReference   = "localhost/busybox:1"
	QuickExitReference = "localhost/quick-exit:1"
	// OperatorRepository is the operator's image without a tag.
	OperatorRepository = "localhost/sidecar-termination-operator"
)

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Pause returns the image of pod sandboxes.
func Pause(program []byte, platform v1.Platform) (v1.Image, error) {
	return rootfs{files: map[string][]byte{"pause": program}}.image(platform, v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"})
}

// Operator returns the operator's image.
func Operator(program []byte, platform v1.Platform) (v1.Image, error) {
	const binary = "sidecar-termination-operator"
	return rootfs{files: map[string][]byte{binary: program}, directories: map[string]int64{"tmp": 0o1777}}.image(platform,
		v1.Config{Entrypoint: []string{"/" + binary}, User: "65532:65532", Env: []string{searchPath}})
}

// Busybox returns an image in which each applet is a hard link to the static program.
func Busybox(program []byte, applets []string, platform v1.Platform) (v1.Image, error) {
	root := rootfs{
		files:       map[string][]byte{"bin/busybox": program},
		links:       map[string]string{},
		directories: map[string]int64{"tmp": 0o1777, "root": 0o700, "proc": 0o755, "dev": 0o755, "sys": 0o755, "var/run": 0o755},
		texts: map[string]string{
			"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
			"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
		},
	}
	for _, applet := range applets {
		if target := path.Join("bin", applet); applet != "busybox" {
			root.links[target] = "bin/busybox"
		}
	}
	return root.image(platform, v1.Config{Cmd: []string{"sh"}, Env: []string{searchPath}})
}

// Save writes an archive of the image that a container runtime can import.
func Save(file, reference string, image v1.Image) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("parse the image reference %s: %w", reference, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create the directory of image archives: %w", err)
	}
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		return fmt.Errorf("write the image %s: %w", reference, err)
	}
	return nil
}
