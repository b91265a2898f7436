// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/overlay"
)

// overlay writes changed source files below the directory, and returns the arguments with which the go command builds with them.
func (b Builder) overlay(ctx context.Context, tool Tool, directory string) ([]string, error) {
	directory = filepath.Join(directory, "overlay")
	if err := os.RemoveAll(directory); err != nil {
		return nil, fmt.Errorf("remove an old overlay: %w", err)
	}
	var arguments []string
	replacements := overlay.Replacements{}
	if len(tool.Links) > 0 {
		module, err := b.addLinks(ctx, tool, directory, replacements)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, module)
	}
	if tool.Loopback {
		if err := replacements.AddLoopback(ctx, directory); err != nil {
			return nil, err
		}
	}
	argument, err := replacements.Write(filepath.Join(directory, "overlay.json"))
	return append(arguments, argument), err
}

// addLinks adds the tool's links to the replacements, and returns the argument that selects the module file.
func (b Builder) addLinks(ctx context.Context, tool Tool, directory string, replacements overlay.Replacements) (argument string, err error) {
	source, err := b.source(ctx, tool, tool.Source)
	if err != nil {
		return "", err
	}
	files := map[string]string{}
	for name, target := range tool.Links {
		files[name] = filepath.Join(source, target)
	}
	return b.replaceFiles(tool, directory, tool.Source, source, files, replacements)
}

// replaceFiles adds files of a module to the replacements, and returns the argument that selects the module file. The go command
// refuses to replace files in the module cache. Therefore the build replaces the module with a link to it.
func (b Builder) replaceFiles(
	tool Tool, directory, module, source string, files map[string]string, replacements overlay.Replacements,
) (argument string, err error) {
	path := func(name string) string { return filepath.Join(directory, name) }
	link := path("source")
	for name, file := range files {
		replacements[filepath.Join(link, name)] = file
	}
	contents := map[string][]byte{}
	for _, name := range []string{"go.mod", "go.sum"} {
		if contents[name], err = os.ReadFile(filepath.Join(b.module(tool), name)); err != nil {
			return "", fmt.Errorf("read the tool module: %w", err)
		}
	}
	contents["go.mod"] = fmt.Appendf(contents["go.mod"], "\nreplace %s => %q\n", module, link)
	for name, content := range contents {
		if err := layout.WriteFile(path(name), content); err != nil {
			return "", err
		}
	}
	if err := os.Symlink(source, link); err != nil {
		return "", fmt.Errorf("link to the source of %s: %w", module, err)
	}
	return "-modfile=" + path("go.mod"), nil
}
