// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"strings"

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
			target.Container, err, target.Image, declaration(target, quickexit.Everything))
	}
	return obstacle{v1alpha1.ReasonCommandNotCovered, message}
}

// declaration says where to declare that the image covers the entry: beside the image in the policy, or by the flag of the
// operator. A policy cannot speak of the operator's image, so it needs an image of its own.
func declaration(target resolve.Target, entry string) string {
	if target.Policy == nil {
		if target.QuickExitPaths.IsZero() {
			return "run the operator with --quick-exit-paths=" + strings.Join(besidesDefault(entry), ",")
		}
		return fmt.Sprintf("add %s to the operator's --quick-exit-paths", entry)
	}
	place := "the spec"
	if target.ImageSource == resolve.SourceEntry {
		place = "sidecar " + target.Container
	}
	list := strings.Join(besidesDefault(entry), ", ")
	if entry == quickexit.Everything {
		list = `"*"` // in YAML a bare asterisk is an alias
	}
	switch {
	case target.ImageSource == resolve.SourceOperator:
		return fmt.Sprintf("set image with quickExitPaths: [%s] in %s of %s", list, place, target.Policy)
	case target.QuickExitPaths.IsZero():
		return fmt.Sprintf("set quickExitPaths: [%s] in %s of %s", list, place, target.Policy)
	default:
		return fmt.Sprintf("add %s to quickExitPaths in %s of %s", entry, place, target.Policy)
	}
}

// besidesDefault lists what an image has with the entry and the default paths.
func besidesDefault(entry string) []string {
	if entry == quickexit.Everything {
		return []string{entry}
	}
	return []string{quickexit.Default, entry}
}
