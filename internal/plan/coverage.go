// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// uncovered is the obstacle of a quick-exit image that does not run its program in place of the container's command: the
// container could not start, and under Never its pod would fail.
func (s *situation) uncovered(target resolve.Target) obstacle {
	container := containerOf(s.Pod, target.Container)
	if container == nil {
		return obstacle{}
	}
	err := quickexit.CoversContainer(target.QuickExitPaths, container)
	if err == nil {
		return obstacle{}
	}
	var missing *quickexit.MissingError
	var hidden *quickexit.HiddenError
	var message string
	switch {
	case errors.As(err, &missing):
		path := missing.Wanted()
		message = fmt.Sprintf("container %s runs %s, which quick-exit image %s does not have; build one with `sidecar-termination-operator quick-exit-image --path %s --push IMAGE` and %s, or declare another mode",
			target.Container, path, target.Image, path, declaration(target, path))
	case errors.As(err, &hidden):
		message = fmt.Sprintf("container %s would run %s, and the volume at %s hides what an image has there; declare another mode, or mount the volume elsewhere",
			target.Container, hidden.Path, hidden.Mount)
	default:
		message = fmt.Sprintf("it cannot be told what container %s runs: %v; if quick-exit image %s covers every command, %s, or declare another mode",
			target.Container, err, target.Image, declaration(target, string(quickexit.Everything)))
	}
	return obstacle{v1alpha1.ReasonCommandNotCovered, message}
}

// declaration says where to declare that the image covers the entry.
func declaration(target resolve.Target, entry string) string {
	switch {
	case target.Policy != nil && target.QuickExitPaths != "":
		return fmt.Sprintf("add %s to annotation %s of %s", entry, v1alpha1.AnnotationQuickExitPaths, target.Policy)
	case target.QuickExitPaths != "":
		return fmt.Sprintf("add %s to the operator's --quick-exit-paths", entry)
	case target.Policy != nil:
		return fmt.Sprintf("annotate %s with %s=%s", target.Policy, v1alpha1.AnnotationQuickExitPaths, besidesDefault(entry))
	default:
		return fmt.Sprintf("run the operator with --quick-exit-paths=%s", besidesDefault(entry))
	}
}

// besidesDefault is the full set that an image has with the entry and the default paths.
func besidesDefault(entry string) quickexit.Coverage {
	if quickexit.Coverage(entry) == quickexit.Everything {
		return quickexit.Everything
	}
	return quickexit.CoverageOf(string(quickexit.Default), entry)
}
