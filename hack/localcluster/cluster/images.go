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

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/packaging/program"
	"github.com/sidecar-termination/operator/internal/quickexit"
)

// platform is the platform of this machine.
func platform() v1.Platform { return v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH} }

// buildImages makes the images that every cluster has and returns their archives,
// the pod sandbox first.
func (c *Cluster) buildImages(ctx context.Context) ([]string, error) {
	builders := []struct {
		reference string
		build     func(context.Context) (v1.Image, error)
	}{
		{images.PauseReference, c.pauseImage},
		{images.BusyboxReference, busyboxImage},
		{images.QuickExitReference, c.quickExitImage},
	}
	var archives []string
	for _, builder := range builders {
		image, err := builder.build(ctx)
		if err != nil {
			return nil, fmt.Errorf("build the image %s: %w", builder.reference, err)
		}
		archive, err := c.saveImage(builder.reference, image)
		if err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

func (c *Cluster) saveImage(reference string, image v1.Image) (string, error) {
	archive := c.layout.Path("images", strings.NewReplacer("/", "_", ":", "_").Replace(reference)+".tar")
	return archive, images.Save(archive, reference, image)
}

func (c *Cluster) pauseImage(ctx context.Context) (v1.Image, error) {
	program, err := c.Compile(ctx, "./hack/localcluster/images/pause")
	if err != nil {
		return nil, err
	}
	return images.Pause(program, platform())
}

func (c *Cluster) quickExitImage(ctx context.Context) (v1.Image, error) {
	program, err := c.Compile(ctx, images.QuickExitProgram)
	if err != nil {
		return nil, err
	}
	return images.QuickExit(program, quickexit.DefaultPaths(), platform())
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

// Compile builds a program of the operator's module for the machine and returns it.
func (c *Cluster) Compile(ctx context.Context, path string) ([]byte, error) {
	compiled, err := program.Compile(ctx, c.layout.Repository, path, platform())
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", path, err)
	}
	return compiled, nil
}

// importImages makes the images of the archives known to a node's kubelet.
func importImages(ctx context.Context, socket string, archives ...string) error {
	for _, archive := range archives {
		command := exec.CommandContext(ctx, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("import %s: %w: %s", filepath.Base(archive), err, output)
		}
	}
	return nil
}
