// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
)

// platform is the platform of this machine.
func platform() v1.Platform { return v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH} }

// importImages makes the images that every cluster has, and makes them known to the kubelet of a container runtime.
func (c *Cluster) importImages(ctx context.Context, socket string) error {
	for reference, build := range map[string]func() (v1.Image, error){
		images.PauseReference:     func() (v1.Image, error) { return images.Pause(ctx, c.Repository, platform()) },
		images.BusyboxReference:   func() (v1.Image, error) { return busyboxImage(ctx) },
		images.QuickExitReference: func() (v1.Image, error) { return images.QuickExit(ctx, c.Repository, platform()) },
	} {
		image, err := build()
		if err != nil {
			return fmt.Errorf("build the image %s: %w", reference, err)
		}
		if err := c.importTo(ctx, reference, image, socket); err != nil {
			return err
		}
	}
	return nil
}

// importImage makes an image known to the kubelets of all nodes.
func (c *Cluster) importImage(ctx context.Context, reference string, image v1.Image) error {
	var sockets []string
	for _, node := range nodes {
		sockets = append(sockets, c.containerdSocket(node))
	}
	return c.importTo(ctx, reference, image, sockets...)
}

// importTo saves an archive of an image, where the virtual node finds it, and imports it to container runtimes.
func (c *Cluster) importTo(ctx context.Context, reference string, image v1.Image, sockets ...string) error {
	archive := c.Path("images", strings.NewReplacer("/", "_", ":", "_").Replace(reference)+".tar")
	tag, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("parse the image reference %s: %w", reference, err)
	}
	if err := ociimage.WriteArchive(archive, tag, image); err != nil {
		return err
	}
	for _, socket := range sockets {
		command := exec.CommandContext(ctx, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("import %s: %w: %s", filepath.Base(archive), err, output)
		}
	}
	return nil
}

func busyboxImage(ctx context.Context) (v1.Image, error) {
	program, err := os.ReadFile(busyboxProgram)
	if err != nil {
		return nil, fmt.Errorf("read busybox: %w", err)
	}
	applets, err := exec.CommandContext(ctx, busyboxProgram, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the applets of busybox: %w", err)
	}
	return images.Busybox(program, strings.Fields(string(applets)), platform())
}
