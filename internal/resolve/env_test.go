// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

const (
	terminate = v1alpha1.EnvTerminate
	withImage = v1alpha1.EnvTerminateWithImage
	ignore    = v1alpha1.EnvIgnoreExitCode
	quickExit = "registry.example/quick-exit:v1"
)

// fromEnv is a sidecar that its environment variables declare.
func fromEnv(mode v1alpha1.Mode, image string, exitCodePolicy v1alpha1.ExitCodePolicy) []resolve.Sidecar {
	target := resolve.Sidecar{
		Container: "proxy", Mode: mode, Image: image, ExitCodePolicy: exitCodePolicy, Timeout: 30 * time.Second, Fallback: v1alpha1.FallbackEnabled,
		DeclaredBy: resolve.SourceEnvironment,
	}
	if image == quickExit {
		target.QuickExitPaths = quickexit.CoverageOf("*") // the author of the pod chose the image
	}
	return []resolve.Sidecar{target}
}

func TestEnvironmentVariables(t *testing.T) {
	appended := func(variables ...corev1.EnvVar) *corev1.Pod {
		pod := newPod("main", "proxy")
		pod.Spec.Containers[1].Env = variables
		return pod
	}
	literal := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	env := func(variables ...string) *corev1.Pod { return withEnv(newPod("main", "proxy"), variables...) }
	const (
		ignored    = v1alpha1.ExitCodePolicyIgnore
		respected  = v1alpha1.ExitCodePolicyRespect
		invalid    = v1alpha1.ReasonInvalidEnv
		unreadable = v1alpha1.ReasonInvalidEnv
	)

	tests := map[string]struct {
		pod      *corev1.Pod
		options  resolve.Options
		want     []resolve.Sidecar
		warnings []v1alpha1.Reason
	}{
		"no variable makes no sidecar":                       {pod: newPod("main", "proxy")},
		"another variable makes no sidecar":                  {pod: env("KRUISE_TERMINATE", "true")},
		"a variable's name is case-sensitive":                {pod: env("kruise_terminate_sidecar_when_job_exit", "true")},
		"TERMINATE makes a sidecar of mode CRR":              {pod: env(terminate, "true"), want: fromEnv(v1alpha1.ModeCRR, "", ignored)},
		"TERMINATE is case-insensitive":                      {pod: env(terminate, "TrUe"), want: fromEnv(v1alpha1.ModeCRR, "", ignored)},
		"TERMINATE false makes no sidecar":                   {pod: env(terminate, "False")},
		"TERMINATE empty makes no sidecar":                   {pod: env(terminate, "")},
		"TERMINATE with another value has a warning":         {pod: env(terminate, "yes"), warnings: []v1alpha1.Reason{invalid}},
		"TERMINATE with a space has a warning":               {pod: env(terminate, "true "), warnings: []v1alpha1.Reason{invalid}},
		"WITH_IMAGE makes a sidecar of mode Image":           {pod: env(withImage, quickExit), want: fromEnv(v1alpha1.ModeImage, quickExit, ignored)},
		"WITH_IMAGE empty makes no sidecar":                  {pod: env(withImage, "")},
		"WITH_IMAGE with a variable reference has a warning": {pod: env(withImage, "$(EXIT_IMAGE)"), warnings: []v1alpha1.Reason{invalid}},
		"WITH_IMAGE with a space has a warning":              {pod: env(withImage, " quick-exit"), warnings: []v1alpha1.Reason{invalid}},
		"an invalid image counts as unset":                   {pod: env(terminate, "true", withImage, "$(EXIT_IMAGE)"), want: fromEnv(v1alpha1.ModeCRR, "", ignored), warnings: []v1alpha1.Reason{invalid}},
		"both make a sidecar of mode Auto":                   {pod: env(terminate, "true", withImage, quickExit), want: fromEnv(v1alpha1.ModeAuto, quickExit, ignored)},
		"both in the other order: mode Auto":                 {pod: env(withImage, quickExit, terminate, "true"), want: fromEnv(v1alpha1.ModeAuto, quickExit, ignored)},
		"TERMINATE false with an image is mode Image":        {pod: env(terminate, "false", withImage, quickExit), want: fromEnv(v1alpha1.ModeImage, quickExit, ignored)},
		"IGNORE_EXIT_CODE alone makes no sidecar":            {pod: env(ignore, "true")},
		"IGNORE_EXIT_CODE true ignores":                      {pod: env(terminate, "true", ignore, "True"), options: resolve.Options{ExitCodePolicy: respected}, want: fromEnv(v1alpha1.ModeCRR, "", ignored)},
		"IGNORE_EXIT_CODE false respects":                    {pod: env(terminate, "true", ignore, "FALSE"), want: fromEnv(v1alpha1.ModeCRR, "", respected)},
		"IGNORE_EXIT_CODE empty leaves the default":          {pod: env(terminate, "true", ignore, ""), options: resolve.Options{ExitCodePolicy: respected}, want: fromEnv(v1alpha1.ModeCRR, "", respected)},
		"IGNORE_EXIT_CODE with another value has a warning":  {pod: env(terminate, "true", ignore, "1"), want: fromEnv(v1alpha1.ModeCRR, "", ignored), warnings: []v1alpha1.Reason{invalid}},
		"the last of several variables with one name counts": {pod: env(terminate, "true", terminate, "false")},
		"earlier invalid values have no warning":             {pod: env(terminate, "yes", terminate, "true"), want: fromEnv(v1alpha1.ModeCRR, "", ignored)},
		"the last of several exit code settings counts":      {pod: env(terminate, "true", ignore, "false", ignore, ""), want: fromEnv(v1alpha1.ModeCRR, "", ignored)},
		"a value from a reference cannot be read":            {pod: appended(fromField(terminate)), warnings: []v1alpha1.Reason{unreadable}},
		"a last value from a reference unsets an earlier one": {
			pod: appended(literal(terminate, "true"), fromField(terminate)), warnings: []v1alpha1.Reason{unreadable},
		},
		"an unreadable variable does not hide a later one": {
			pod: appended(fromField(ignore), literal(terminate, "true")), want: fromEnv(v1alpha1.ModeCRR, "", ignored), warnings: []v1alpha1.Reason{unreadable},
		},
		"a last literal value counts after a reference": {
			pod: appended(fromField(terminate), literal(terminate, "true")), want: fromEnv(v1alpha1.ModeCRR, "", ignored),
		},
		"ignored variables have no warnings":          {pod: env(terminate, "true", ignore, "1"), options: resolve.Options{IgnoreEnv: true}},
		"a sidecar of mode CRR has the default image": {pod: env(terminate, "true"), options: resolve.Options{Image: "default:v1"}, want: fromEnv(v1alpha1.ModeCRR, "default:v1", ignored)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := resolve.Resolve(test.pod, nil, test.options)
			mains := []string{"main"}
			if test.want == nil {
				mains = []string{"main", "proxy"}
			}
			if diff := cmp.Diff(resolve.View{Sidecars: test.want, Mains: mains}, got.Enforced, withoutOrigins); diff != "" {
				t.Errorf("Enforced (-want +got):\n%s", diff)
			}
			var warnings []v1alpha1.Reason
			for _, warning := range got.Warnings {
				warnings = append(warnings, warning.Reason)
				if warning.Container != "proxy" || warning.Message == "" {
					t.Errorf("warning without container or message: %+v", warning)
				}
			}
			if diff := cmp.Diff(test.warnings, warnings, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsImageReference(t *testing.T) {
	longest := strings.Repeat("a", 512)
	for text, want := range map[string]bool{quickExit: true, longest: true, longest + "a": false, "$(IMAGE)": false, "": false} {
		if got := resolve.IsImageReference(text); got != want {
			t.Errorf("IsImageReference(%q) = %t", text, got)
		}
	}
}
