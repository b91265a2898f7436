// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// envDeclaration is what a container's environment variables declare.
type envDeclaration struct {
	sidecar  bool
	settings v1alpha1.TerminationSettings
	warnings []Warning
}

var imageReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]*$`)

// maxImage limits an image reference to the same length as in a policy.
const maxImage = 512

// IsImageReference reports whether the API accepts the text as a policy's image. It rejects $(VARIABLE), for example.
func IsImageReference(text string) bool {
	return len(text) <= maxImage && imageReference.MatchString(text)
}

// readEnv reads OpenKruise's convention. If a name occurs several times, the last variable counts, as in the container's
// process. A variable without a literal or valid value counts as unset.
func readEnv(container *corev1.Container) envDeclaration {
	var d envDeclaration
	terminate, image := false, ""
	for _, variable := range conventionVariables(container) {
		if variable.ValueFrom != nil {
			d.warn(container.Name, variable, "has no literal value, and the operator cannot read valueFrom; set value instead")
			continue
		}
		switch variable.Name {
		case v1alpha1.EnvTerminate:
			terminate, _ = d.readBool(container.Name, variable)
		case v1alpha1.EnvTerminateWithImage:
			image = d.readImage(container.Name, variable)
		case v1alpha1.EnvIgnoreExitCode:
			switch ignore, valid := d.readBool(container.Name, variable); {
			case ignore:
				d.settings.ExitCodePolicy = v1alpha1.ExitCodePolicyIgnore
			case valid:
				d.settings.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect
			}
		}
	}
	d.sidecar = terminate || image != ""
	d.settings.Image = image
	switch {
	case terminate && image != "":
		d.settings.Mode = v1alpha1.ModeAuto
	case terminate:
		d.settings.Mode = v1alpha1.ModeCRR
	case image != "":
		d.settings.Mode = v1alpha1.ModeImage
	}
	return d
}

// ReadEnv reports whether the container's environment variables declare it a sidecar, and with which settings.
func ReadEnv(container *corev1.Container) (sidecar bool, settings v1alpha1.TerminationSettings) {
	d := readEnv(container)
	return d.sidecar, d.settings
}

// EnvNames are the environment variables that the operator reads.
var EnvNames = []string{v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage, v1alpha1.EnvIgnoreExitCode}

// conventionVariables returns the last occurrence of each variable that the operator reads, in the container's order: at
// most three.
func conventionVariables(container *corev1.Container) []*corev1.EnvVar {
	var last []*corev1.EnvVar
	for i := len(container.Env) - 1; i >= 0; i-- {
		variable := &container.Env[i]
		if slices.Contains(EnvNames, variable.Name) && !slices.ContainsFunc(last, func(v *corev1.EnvVar) bool { return v.Name == variable.Name }) {
			last = append(last, variable)
		}
	}
	slices.Reverse(last)
	return last
}

func (d *envDeclaration) readImage(container string, variable *corev1.EnvVar) string {
	if variable.Value != "" && !IsImageReference(variable.Value) {
		d.warn(container, variable, fmt.Sprintf(
			"is %.80q; it must be an image reference of at most %d characters such as registry.example/quick-exit:v1", variable.Value, maxImage))
		return ""
	}
	return variable.Value
}

func (d *envDeclaration) readBool(container string, variable *corev1.EnvVar) (value, valid bool) {
	switch {
	case strings.EqualFold(variable.Value, "true"):
		return true, true
	case strings.EqualFold(variable.Value, "false"):
		return false, true
	case variable.Value != "":
		d.warn(container, variable, fmt.Sprintf(`is %.80q; it must be "true" or "false"`, variable.Value))
	}
	return false, false
}

func (d *envDeclaration) warn(container string, variable *corev1.EnvVar, problem string) {
	message := fmt.Sprintf("container %s: environment variable %s %s", container, variable.Name, problem)
	d.warnings = append(d.warnings, Warning{Container: container, Reason: v1alpha1.ReasonInvalidEnv, Message: message})
}
