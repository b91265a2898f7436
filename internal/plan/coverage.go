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

// commandNotCovered returns why the quick-exit image does not cover the container's command. Such a container could not
// start, and under Never its pod would fail.
func (s *situation) commandNotCovered(sidecar resolve.Sidecar) unusable {
	container := containerOf(s.Pod, sidecar.Container)
	if container == nil {
		return unusable{}
	}
	err := quickexit.CoversContainer(sidecar.QuickExitPaths, container)
	if err == nil {
		return unusable{}
	}
	var missing *quickexit.MissingError
	var hidden *quickexit.HiddenError
	var message string
	switch {
	case errors.As(err, &missing):
		message = fmt.Sprintf("container %s runs %s, which quick-exit image %s does not cover; use an image that has the program there and %s, or declare another mode",
			sidecar.Container, missing.Path, sidecar.Image, declaration(sidecar, missing.Path))
	case errors.As(err, &hidden):
		message = fmt.Sprintf("container %s would run %s, but the volume at %s hides the image's program there; declare another mode, or mount the volume elsewhere",
			sidecar.Container, hidden.Path, hidden.Mount)
	default:
		message = fmt.Sprintf("no list of paths covers the command of container %s: %v; if quick-exit image %s covers every command, %s, or declare another mode",
			sidecar.Container, err, sidecar.Image, declaration(sidecar, quickexit.Everything))
	}
	return unusable{v1alpha1.ReasonCommandNotCovered, message}
}

// declaration tells the user how to declare that the image covers the entry: next to the image in the policy, or by a
// flag of the operator. A policy that uses the operator's image needs an image of its own first.
func declaration(sidecar resolve.Sidecar, entry string) string {
	if sidecar.Policy == nil {
		if sidecar.QuickExitPaths.IsZero() {
			return "run the operator with --quick-exit-paths=" + strings.Join(besidesDefault(entry), ",")
		}
		return fmt.Sprintf("add %s to the operator's --quick-exit-paths", entry)
	}
	place := "the spec"
	if sidecar.ImageSource == resolve.SourceEntry {
		place = "sidecar " + sidecar.Container
	}
	list := strings.Join(besidesDefault(entry), ", ")
	if entry == quickexit.Everything {
		list = `"*"` // in YAML a bare asterisk is an alias
	}
	switch {
	case sidecar.ImageSource == resolve.SourceOperator:
		return fmt.Sprintf("set image with quickExitPaths: [%s] in %s of %s", list, place, sidecar.Policy)
	case sidecar.QuickExitPaths.IsZero():
		return fmt.Sprintf("set quickExitPaths: [%s] in %s of %s", list, place, sidecar.Policy)
	default:
		return fmt.Sprintf("add %s to quickExitPaths in %s of %s", entry, place, sidecar.Policy)
	}
}

// besidesDefault lists the default paths and the entry, or the entry alone where it covers everything.
func besidesDefault(entry string) []string {
	if entry == quickexit.Everything {
		return []string{entry}
	}
	return []string{quickexit.Default, entry}
}
