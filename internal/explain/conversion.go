// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// annotationDefaultContainer names the container that kubectl logs, exec and attach use by default.
const annotationDefaultContainer = "kubectl.kubernetes.io/default-container"

// decideConversion sets what was converted, and what would be if the pod were created now.
func (x *explainer) decideConversion(asEnforced bool) {
	if !x.Template {
		x.converted = native.Recorded(x.Pod.Pod)
	}
	x.conversion = x.decideFor(x.Policies, asEnforced)
}

// decideFor decides with the default marks of virtual nodes. A namespace converts by environment variables if it has the label.
func (x *explainer) decideFor(policies []resolve.Policy, asEnforced bool) native.Decision {
	return native.Decide(x.atCreation(), x.NamespaceLabels, policies, native.Options{
		Environment: x.NamespaceLabels[v1alpha1.LabelNativeEnvironment] == "true",
		IgnoreEnv:   x.operator.Resolve.IgnoreEnv, ExitCodes: x.operator.Resolve.ExitCodes,
		AsEnforced: asEnforced, VirtualNodes: native.DefaultVirtualNodeMarks(),
	})
}

// atCreation returns the pod as it was when it was created: without a node, unless its template names one, and before
// conversion. A template is such a pod.
func (x *explainer) atCreation() *corev1.Pod {
	if x.Template {
		return x.Pod.Pod
	}
	pod := x.Pod.Pod.DeepCopy()
	if !x.NamesNode {
		pod.Spec.NodeName = ""
	}
	delete(pod.Annotations, v1alpha1.AnnotationNativeSidecars)
	for _, conversion := range x.converted {
		i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == conversion.Container })
		container := pod.Spec.InitContainers[i]
		container.RestartPolicy = nil
		pod.Spec.Containers = append(pod.Spec.Containers, container)
		pod.Spec.InitContainers = slices.Delete(pod.Spec.InitContainers, i, i+1)
	}
	return pod
}

// convertedBy returns on whose request the container was converted, or nothing.
func (x *explainer) convertedBy(container string) string {
	for _, conversion := range x.converted {
		if conversion.Container == container {
			return conversion.By
		}
	}
	return ""
}

// willConvert reports whether the container of a template becomes a native sidecar.
func (x *explainer) willConvert(container string) bool {
	return x.Template && x.conversion.Converts(container)
}

// checkConversion says which sidecars were or will be converted to native ones, and why others were not.
func (x *explainer) checkConversion() []Finding {
	var all []Finding
	for _, conversion := range x.converted {
		all = append(all, finding(SeverityNote, v1alpha1.ReasonConvertedToNative, conversion.Container, fmt.Sprintf(
			"container %s is a native sidecar since admission, by %s", conversion.Container, conversion.By)))
	}
	if x.isFinished() {
		return all
	}
	all = append(all, x.whyNotConverted()...)
	if x.Template {
		return append(all, x.conversionChanges()...)
	}
	return append(all, x.notConverted()...)
}

// whyNotConverted returns the reasons against conversions that a policy asks for.
func (x *explainer) whyNotConverted() []Finding {
	var all []Finding
	for _, exclusion := range x.conversion.Exclusions {
		all = append(all, conversionFinding(exclusion.Reason, exclusion.Container, exclusion.Message))
	}
	switch reason := x.conversion.Reason; {
	case len(all)+len(x.converted)+len(x.conversion.Conversions) > 0, reason == v1alpha1.ReasonConversionNotRequested:
	case reason == v1alpha1.ReasonNoMainContainer && len(x.view.Mains) == 0:
		// The pod has a finding with this reason.
	default:
		all = append(all, conversionFinding(reason, "", x.conversion.Message))
	}
	return all
}

// conversionFinding is a finding on what keeps containers from being converted. It is a note, for the modes end them, unless the
// manifest has a mistake.
func conversionFinding(reason v1alpha1.Reason, container, message string) Finding {
	severity := SeverityNote
	if reason == v1alpha1.ReasonAnnotationPresent {
		severity = SeverityWarning
	}
	f := finding(severity, reason, container, "not converted to a native sidecar: "+message)
	f.Hint = conversionHints[reason]
	return f
}

// notConverted finds sidecars of a pod that would be converted now and were not.
func (x *explainer) notConverted() []Finding {
	created := x.Pod.Pod.CreationTimestamp.Time
	earlier := x.decideFor(filter(x.Policies, func(p resolve.Policy) bool { return !p.Created.After(created) }), false)
	var all []Finding
	for _, conversion := range x.conversion.Conversions {
		name, by := conversion.Container, conversion.By
		if x.convertedBy(name) != "" {
			continue
		}
		why := "the pod was created before that, or the cluster cannot convert"
		if !earlier.Converts(name) {
			why = "the pod is older than the policy"
		}
		all = append(all, finding(SeverityNote, v1alpha1.ReasonNotConverted, name, fmt.Sprintf(
			"container %s was not converted to a native sidecar, although %s asks for it: %s", name, by, why)))
	}
	return all
}

// conversionChanges says what the conversion of a template's sidecars changes, as far as the manifest shows it.
func (x *explainer) conversionChanges() []Finding {
	conversions := x.conversion.Conversions
	if len(conversions) == 0 {
		return nil
	}
	var texts []string
	for _, conversion := range conversions {
		texts = append(texts, fmt.Sprintf("%s (by %s)", conversion.Container, conversion.By))
	}
	all := []Finding{finding(SeverityNote, v1alpha1.ReasonWouldConvert, x.onlyConversion(), fmt.Sprintf(
		"if the cluster can convert, these become native sidecars: %s. Each starts before the main containers, which do not start while its image cannot be pulled; starts again whenever it exits, even with 0; and stops after them, within the grace period of %s",
		strings.Join(texts, ", "), plan.GracePeriod(x.Pod.Pod)))}
	all = append(all, x.startupProbes()...)
	all = append(all, x.restartsCount()...)
	all = append(all, x.defaultContainer()...)
	all = append(all, x.hostPortClashes()...)
	return append(all, x.reapplyRejected()...)
}

// onlyConversion returns the name of the container that converts if there is only one, or nothing.
func (x *explainer) onlyConversion() string {
	if len(x.conversion.Conversions) == 1 {
		return x.conversion.Conversions[0].Container
	}
	return ""
}

// startupProbes finds converted sidecars whose startup probe delays the containers after them. The kubelet starts the next
// container once the probe has succeeded (pkg/kubelet/kuberuntime/kuberuntime_container.go).
func (x *explainer) startupProbes() []Finding {
	var all []Finding
	for i := range x.Pod.Pod.Spec.Containers {
		container := &x.Pod.Pod.Spec.Containers[i]
		if container.StartupProbe == nil || !x.willConvert(container.Name) {
			continue
		}
		all = append(all, finding(SeverityNote, v1alpha1.ReasonStartupProbeDelaysMain, container.Name, fmt.Sprintf(
			"startupProbe of container %s delays the main containers until it succeeds; it may fail for %s before the container is restarted",
			container.Name, startupTime(container.StartupProbe))))
	}
	return all
}

// startupTime is how long a startup probe may fail, with the defaults of Kubernetes.
func startupTime(probe *corev1.Probe) time.Duration {
	const defaultPeriod, defaultThreshold = 10, 3
	period, threshold := int64(probe.PeriodSeconds), int64(probe.FailureThreshold)
	if period == 0 {
		period = defaultPeriod
	}
	if threshold == 0 {
		threshold = defaultThreshold
	}
	return time.Duration(int64(probe.InitialDelaySeconds)+period*threshold) * time.Second
}

// restartsCount compares the restarts of converted sidecars with the Job's backoffLimit. The Job controller counts those of init
// containers as well (pkg/controller/job/job_controller.go, pastBackoffLimitOnFailure).
func (x *explainer) restartsCount() []Finding {
	if x.Pod.Pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure || x.BackoffLimit == nil {
		return nil
	}
	severity, consequence := SeverityNote, fmt.Sprintf("the Job fails when all restarts reach its backoffLimit, %d", *x.BackoffLimit)
	if *x.BackoffLimit <= 1 {
		severity, consequence = SeverityWarning, fmt.Sprintf("with backoffLimit %d the first restart fails the Job", *x.BackoffLimit)
	}
	return []Finding{finding(severity, v1alpha1.ReasonSidecarRestartsCount, x.onlyConversion(),
		"under restartPolicy OnFailure each restart of a native sidecar counts, even after exit code 0: "+consequence)}
}

// defaultContainer finds an annotation that names a converted sidecar.
func (x *explainer) defaultContainer() []Finding {
	name := x.Pod.Pod.Annotations[annotationDefaultContainer]
	if !x.willConvert(name) {
		return nil
	}
	return []Finding{finding(SeverityNote, v1alpha1.ReasonDefaultContainerConverted, name, fmt.Sprintf(
		"annotation %s names container %s, which becomes an init container: kubectl still uses it, but tools that read only spec.containers do not find it",
		annotationDefaultContainer, name))}
}

// hostPortClashes finds host ports that a converted sidecar shares with another container. The API server compares the host ports
// of regular containers, but not those of init containers (pkg/apis/core/validation/validation.go).
func (x *explainer) hostPortClashes() []Finding {
	var all []Finding
	users := map[string]*corev1.Container{}
	for i := range x.Pod.Pod.Spec.Containers {
		container := &x.Pod.Pod.Spec.Containers[i]
		for _, port := range container.Ports {
			if port.HostPort == 0 && x.Pod.Pod.Spec.HostNetwork {
				port.HostPort = port.ContainerPort
			}
			if port.HostPort == 0 {
				continue
			}
			if port.Protocol == "" {
				port.Protocol = corev1.ProtocolTCP
			}
			key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			other := users[key]
			if other == nil {
				users[key] = container
				continue
			}
			if other != container && (x.willConvert(container.Name) || x.willConvert(other.Name)) {
				all = append(all, finding(SeverityWarning, v1alpha1.ReasonHostPortClash, "", fmt.Sprintf(
					"containers %s and %s have the same ports.hostPort, %d (%s): the API server rejects this for regular containers, but accepts the converted pod, in which only one of them gets the port",
					other.Name, container.Name, port.HostPort, port.Protocol)))
			}
		}
	}
	return all
}

// reapplyRejected finds a Pod that cannot be applied twice: its manifest lists the converted containers as regular ones.
func (x *explainer) reapplyRejected() []Finding {
	if x.Kind != "Pod" || x.Pod.Pod.Name == "" || metav1.GetControllerOf(x.Pod.Pod) != nil {
		return nil
	}
	return []Finding{finding(SeverityWarning, v1alpha1.ReasonReapplyRejected, "",
		"spec.containers of the created pod differs from the manifest: the API server rejects the manifest if it is applied again while the pod exists")}
}
