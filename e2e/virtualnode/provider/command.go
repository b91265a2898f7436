// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

const defaultSearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command is the command of a container. Its paths are relative to the root.
type command struct {
	root        string
	path        string
	arguments   []string
	environment []string
	directory   string
	user        syscall.Credential
}

// newCommand merges the container with its image's config, as container runtimes do.
func newCommand(spec corev1.Container, security *corev1.PodSecurityContext, image image, root string) command {
	entrypoint, arguments := image.config.Entrypoint, image.config.Cmd
	if len(spec.Command) > 0 {
		entrypoint, arguments = spec.Command, nil
	}
	if len(spec.Args) > 0 {
		arguments = spec.Args
	}
	c := command{root: root, arguments: append(append([]string{}, entrypoint...), arguments...), directory: "/", user: user(spec, security, image)}
	values := map[string]string{"PATH": defaultSearchPath}
	for _, variable := range image.config.Env {
		name, value, _ := strings.Cut(variable, "=")
		values[name] = value
	}
	for _, variable := range spec.Env {
		values[variable.Name] = variable.Value
	}
	for name, value := range values {
		c.environment = append(c.environment, name+"="+value)
	}
	for _, directory := range []string{image.config.WorkingDir, spec.WorkingDir} {
		if directory != "" {
			c.directory = directory
		}
	}
	if len(c.arguments) > 0 {
		c.path = resolve(c.arguments[0], root, values["PATH"])
	}
	return c
}

// resolve searches PATH for a program without a directory. It returns an unknown program
// unchanged.
func resolve(program, root, searchPath string) string {
	if strings.Contains(program, "/") {
		return program
	}
	for _, directory := range filepath.SplitList(searchPath) {
		if _, err := os.Stat(filepath.Join(root, directory, program)); err == nil {
			return filepath.Join(directory, program)
		}
	}
	return "/" + program
}

// user returns the numeric user of the container. A name means root.
func user(spec corev1.Container, security *corev1.PodSecurityContext, image image) syscall.Credential {
	name, group, _ := strings.Cut(image.config.User, ":")
	result := syscall.Credential{Uid: number(name), Gid: number(group)}
	if security != nil && security.RunAsUser != nil {
		result.Uid = uint32(*security.RunAsUser)
	}
	if spec.SecurityContext != nil && spec.SecurityContext.RunAsUser != nil {
		result.Uid = uint32(*spec.SecurityContext.RunAsUser)
	}
	return result
}

func number(text string) uint32 {
	value, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(value)
}
