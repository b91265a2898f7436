// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/quickexit/manifest"
)

// allPaths returns the paths of the image, sorted, and warnings about containers that it may not end.
func (o *options) allPaths(stdin io.Reader) (paths, warnings []string, err error) {
	paths = []string{quickexit.Entrypoint}
	if !o.noDefaultPaths {
		paths = append(paths, quickexit.DefaultPaths()...)
	}
	for _, path := range o.paths {
		if err := quickexit.ValidatePaths([]string{path}); err != nil {
			return nil, nil, fmt.Errorf("--path: %w", err)
		}
		paths = append(paths, path)
	}
	containers, err := o.readContainers(stdin)
	if err != nil {
		return nil, nil, err
	}
	further, warnings, err := manifest.Paths(paths, containers)
	if err != nil {
		return nil, nil, fmt.Errorf("--from-file: %w (--container can leave a container out)", err)
	}
	paths = append(paths, further...)
	slices.Sort(paths)
	paths = slices.Compact(paths)
	if err := quickexit.ValidatePaths(paths); err != nil {
		return nil, nil, fmt.Errorf("combine the paths: %w", err)
	}
	return paths, warnings, nil
}

// readContainers returns the selected containers of all files. It fails if no file has a container of a selected name.
func (o *options) readContainers(stdin io.Reader) ([]manifest.Container, error) {
	var containers []manifest.Container
	for _, file := range o.files {
		found, err := readFile(file, stdin)
		if err != nil {
			return nil, fmt.Errorf("--from-file: %w", err)
		}
		containers = append(containers, found...)
	}
	for _, name := range o.containers {
		named := func(container manifest.Container) bool { return container.Name == name }
		if !slices.ContainsFunc(containers, named) {
			return nil, fmt.Errorf("--container is %q; no file of --from-file has a container of this name", name)
		}
	}
	if len(o.containers) == 0 {
		return containers, nil
	}
	return slices.DeleteFunc(containers, func(container manifest.Container) bool {
		return !slices.Contains(o.containers, container.Name)
	}), nil
}

func readFile(file string, stdin io.Reader) (containers []manifest.Container, err error) {
	if file == "-" {
		return manifest.Read("standard input", stdin)
	}
	opened, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	return manifest.Read(file, opened)
}
