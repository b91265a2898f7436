// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/internal/settings"
)

const (
	windows = "windows"
	// completion is the program that kubectl runs to complete the plugin's command line. It is a shell script.
	completion = "kubectl_complete-sidecar_termination"
)

// PluginPlatforms returns the platforms that have an archive of the kubectl plugin.
func PluginPlatforms() []v1.Platform {
	return []v1.Platform{
		{OS: "darwin", Architecture: "amd64"},
		{OS: "darwin", Architecture: "arm64"},
		{OS: "linux", Architecture: "amd64"},
		{OS: "linux", Architecture: "arm64"},
		{OS: windows, Architecture: "amd64"},
	}
}

// PluginFile returns the name of the plugin's archive for a platform.
func PluginFile(platform v1.Platform) string {
	return fmt.Sprintf("%s-%s-%s.tar.gz", settings.PluginProgram, platform.OS, platform.Architecture)
}

// WritePlugin compiles the kubectl plugin of the repository for the platforms, writes an archive for each into a directory, and
// returns the paths.
func WritePlugin(ctx context.Context, repository, directory string, platforms []v1.Platform) ([]string, error) {
	license, err := os.ReadFile(filepath.Join(repository, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("read the licence: %w", err)
	}
	completes, err := os.ReadFile(filepath.Join(repository, "cmd", settings.PluginProgram, completion))
	if err != nil {
		return nil, fmt.Errorf("read the program for shells: %w", err)
	}
	archives := map[string][]byte{}
	for _, platform := range platforms {
		compiled, err := images.Compile(ctx, repository, "./cmd/"+settings.PluginProgram, platform)
		if err != nil {
			return nil, err
		}
		programs := map[string][]byte{settings.PluginProgram: compiled, completion: completes}
		if platform.OS == windows {
			programs = map[string][]byte{settings.PluginProgram + ".exe": compiled}
		}
		archives[PluginFile(platform)], err = archive(ociimage.Rootfs{Programs: programs, Texts: map[string]string{"LICENSE": string(license)}})
		if err != nil {
			return nil, err
		}
	}
	return write(directory, archives)
}
