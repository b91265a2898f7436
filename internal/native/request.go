// SPDX-License-Identifier: Apache-2.0

package native

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// request asks for the conversion of containers: a policy, or the environment variables if spec is nil.
type request struct {
	by   string
	spec *v1alpha1.PolicySpec
	// listed are the main containers in the annotation that the policy names.
	listed []string
}

// answer is what a request says about one container.
type answer struct {
	// declared is true if the request makes the container a sidecar.
	declared bool
	// wanted is true if it should be converted; otherwise reason says why not, if the request asks for it.
	wanted  bool
	reason  v1alpha1.Reason
	message string
}

// Requests reports whether a policy with this spec asks for the conversion of a container, regardless of its enforcement.
// It does not ask with a nativeConversion that this version does not know.
func Requests(spec *v1alpha1.PolicySpec) bool {
	if len(spec.Sidecars) == 0 {
		return spec.NativeConversion == v1alpha1.NativeConversionPreferred
	}
	return slices.ContainsFunc(spec.Sidecars, func(s v1alpha1.Sidecar) bool { return prefers(spec, &s.TerminationSettings) })
}

// prefers reports whether the entry of a policy, or else its spec, asks for conversion.
func prefers(spec *v1alpha1.PolicySpec, entry *v1alpha1.TerminationSettings) bool {
	return cmp.Or(entry.NativeConversion, spec.NativeConversion) == v1alpha1.NativeConversionPreferred
}

// requestsFor returns what asks for conversion in the pod, sorted by name. A policy that leaves the pod alone does not ask.
func requestsFor(pod *corev1.Pod, selecting []resolve.Policy, options Options) []request {
	var requests []request
	for _, policy := range selecting {
		listed, valid := policy.ListedMains(pod)
		if valid && (policy.Spec.Enforcement.Acts() || options.AsEnforced) && Requests(policy.Spec) {
			requests = append(requests, request{by: policy.Ref.String(), spec: policy.Spec, listed: listed})
		}
	}
	if options.Environment && !options.IgnoreEnv {
		requests = append(requests, request{by: Environment})
	}
	slices.SortFunc(requests, func(a, b request) int { return cmp.Compare(a.by, b.by) })
	return requests
}

// answerFor returns what the request says about the container.
func (r request) answerFor(container *corev1.Container, options Options) answer {
	declared, env := resolve.ReadEnv(container)
	if options.IgnoreEnv {
		env = v1alpha1.TerminationSettings{}
	}
	var entry v1alpha1.TerminationSettings
	spec := &v1alpha1.PolicySpec{TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: v1alpha1.NativeConversionPreferred}}
	if r.spec != nil {
		spec = r.spec
		entry, declared = r.entryFor(container.Name)
	}
	if !declared || !prefers(spec, &entry) {
		return answer{declared: declared}
	}
	if seconds := cmp.Or(entry.DrainSeconds, spec.DrainSeconds); ptr.Deref(seconds, 0) > 0 {
		return answer{
			declared: true, reason: v1alpha1.ReasonDrainConfigured,
			message: fmt.Sprintf("%s sets drainSeconds for container %s, and Kubernetes does not let native sidecars drain", r.by, container.Name),
		}
	}
	exitCodes := cmp.Or(entry.ExitCodes, spec.ExitCodes, env.ExitCodes, options.ExitCodes, v1alpha1.ExitCodesIgnore)
	if exitCodes != v1alpha1.ExitCodesIgnore {
		return answer{
			declared: true, reason: v1alpha1.ReasonExitCodesRespected,
			message: fmt.Sprintf("container %s has exitCodes %s, and the exit code of a native sidecar never counts", container.Name, exitCodes),
		}
	}
	return answer{declared: true, wanted: true}
}

// entryFor returns the settings of the policy's entry for the container, and whether the policy makes it a sidecar.
func (r request) entryFor(container string) (entry v1alpha1.TerminationSettings, declared bool) {
	for i := range r.spec.Sidecars {
		if r.spec.Sidecars[i].Name == container {
			return r.spec.Sidecars[i].TerminationSettings, true
		}
	}
	isMain := slices.Contains(r.spec.MainContainers, v1alpha1.ContainerName(container)) || slices.Contains(r.listed, container)
	return entry, len(r.spec.Sidecars) == 0 && !isMain
}
