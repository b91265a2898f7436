// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// mayHang finds undeclared containers that may keep the pod from finishing. It guesses:
//
//   - a container that still runs after another one has terminated may be a sidecar (running pods only);
//   - a container with the name or image of a well-known sidecar is probably a sidecar, if another one may be the main container;
//   - a container that an injector adds is a sidecar (templates only);
//   - one of several other undeclared containers may be a sidecar.
//
// Containers under mainContainers of a policy and containers that are alone in their pod have no finding.
func (x *explainer) mayHang() {
	x.undeclaredInjections()
	others, known := x.undeclared(), 0
	if mains := slices.DeleteFunc(slices.Clone(x.view.Mains), x.isKnownSidecar); len(mains) > 0 {
		others = slices.DeleteFunc(others, func(container *corev1.Container) bool {
			why := knownSidecar(container)
			if why != "" && !x.hasTerminated(container.Name) {
				known++
				x.add(SeverityProblem, v1alpha1.ReasonMayHang, container.Name,
					"container %s (%s) usually runs until it is stopped, and is not declared a sidecar: the pod may never finish", container.Name, why)
			}
			return why != ""
		})
	}
	var names []string
	for _, container := range others {
		names = append(names, container.Name)
	}
	switch {
	case len(names)+known < 2:
	case slices.ContainsFunc(names, x.hasTerminated):
		x.leftRunning(names)
	case len(names) > 1:
		x.add(SeverityWarning, v1alpha1.ReasonMayHang, "",
			"%s count as main containers: the pod hangs unless each of them exits by itself", strings.Join(names, ", "))
	}
}

// isKnownSidecar reports whether the container looks like a well-known sidecar.
func (x *explainer) isKnownSidecar(name string) bool {
	i := slices.IndexFunc(x.Pod.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	return i >= 0 && knownSidecar(&x.Pod.Pod.Spec.Containers[i]) != ""
}

// undeclared lists the regular containers without a declaration, except those that end without one.
func (x *explainer) undeclared() []*corev1.Container {
	var undeclared []*corev1.Container
	for i := range x.Pod.Pod.Spec.Containers {
		container := &x.Pod.Pod.Spec.Containers[i]
		if x.view.Sidecar(container.Name) == nil && !x.declaredMain(container.Name) && !x.declaredDryRun(container.Name) &&
			!slices.Contains(x.EndedByOthers, container.Name) {
			undeclared = append(undeclared, container)
		}
	}
	return undeclared
}

// leftRunning finds containers that still run after others have terminated. If the pod has declared sidecars, such a container is
// more likely to be at work.
func (x *explainer) leftRunning(undeclared []string) {
	severity := SeverityProblem
	if len(x.view.Sidecars) > 0 {
		severity = SeverityWarning
	}
	for _, name := range undeclared {
		if !x.hasTerminated(name) {
			x.add(severity, v1alpha1.ReasonMayHang, name,
				"container %s is still running after others have terminated, and is not declared a sidecar: the pod may never finish", name)
		}
	}
}

// hasTerminated reports whether the container has terminated and will not restart.
func (x *explainer) hasTerminated(name string) bool {
	return !x.Template && x.snapshot().MainDone(name)
}

// declaredMain reports whether a policy, be it in DryRun, declares the container a main container.
func (x *explainer) declaredMain(name string) bool {
	return slices.ContainsFunc(x.Policies, func(p resolve.Policy) bool { return p.Role(x.Pod.Pod, name, x.operator.Resolve) == resolve.RoleMain })
}

// declaredDryRun reports whether a DryRun policy declares the container a sidecar.
func (x *explainer) declaredDryRun(name string) bool {
	return x.resolution.DryRun != nil && x.resolution.DryRun.Sidecar(name) != nil
}

// knownNames are the names that injectors and charts give to sidecars.
var knownNames = []string{
	"alloydb-auth-proxy", "aws-for-fluent-bit", "cloud-sql-proxy", "cloudsql-proxy", "consul-dataplane", "daprd", "datadog-agent",
	"dind", "envoy", "envoy-sidecar", "filebeat", "fluent-bit", "fluentbit", "fluentd", "gke-gcsfuse-sidecar", "istio-proxy",
	"jaeger-agent", "kuma-sidecar", "linkerd-proxy", "oauth2-proxy", "opentelemetry-collector", "otc-container", "otel-collector",
	"pgbouncer", "promtail", "telegraf", "vault-agent", "vector", "xray-daemon",
}

// knownImages are the last parts of the image repositories of sidecars.
var knownImages = []string{
	"alloy", "alloydb-auth-proxy", "aws-for-fluent-bit", "aws-xray-daemon", "cloud-sql-proxy", "cloudsql-docker", "consul-dataplane",
	"daprd", "datadog-agent", "envoy", "filebeat", "fluent-bit", "fluentd", "gce-proxy", "jaeger-agent", "kuma-dp", "linkerd-proxy",
	"oauth2-proxy", "opentelemetry-collector", "opentelemetry-collector-contrib", "pgbouncer", "promtail", "proxyv2", "telegraf",
	"vector",
}

// knownSidecar returns the name or image that marks the container as a well-known sidecar, or nothing.
func knownSidecar(container *corev1.Container) string {
	if slices.Contains(knownNames, container.Name) {
		return "name " + container.Name
	}
	repository, _, _ := strings.Cut(container.Image, "@")
	last := repository[strings.LastIndex(repository, "/")+1:]
	last, _, _ = strings.Cut(last, ":")
	if slices.Contains(knownImages, last) {
		return "image " + last
	}
	return ""
}

// lintReasons are the reasons of declarations that are missing, ineffective, or have unintended effects.
var lintReasons = []v1alpha1.Reason{
	v1alpha1.ReasonMayHang, v1alpha1.ReasonNoMainContainer, v1alpha1.ReasonInvalidEnv,
	v1alpha1.ReasonInvalidSidecars, v1alpha1.ReasonIneffectiveEnv,
	v1alpha1.ReasonRestartPolicyAlways, v1alpha1.ReasonCommandNotCovered, v1alpha1.ReasonInvalidSelector,
	v1alpha1.ReasonSidecarMatchesFailurePolicy, v1alpha1.ReasonDeletedWhileEnding, v1alpha1.ReasonForeignFinalizer,
	v1alpha1.ReasonInvalidManifest, v1alpha1.ReasonNotChecked, v1alpha1.ReasonNamespaceNotWatched,
}

// InvalidManifest is the finding on a mistake in a manifest.
func InvalidManifest(message string) Finding {
	return finding(SeverityProblem, v1alpha1.ReasonInvalidManifest, "", message)
}

// NotChecked is the finding on something that lint could not check.
func NotChecked(message string) Finding {
	return finding(SeverityWarning, v1alpha1.ReasonNotChecked, "", message)
}

// LeftAlone is the finding on something that lint need not check.
func LeftAlone(message string) Finding {
	return Finding{Severity: SeverityNote, Reason: v1alpha1.ReasonNotChecked, Message: message}
}

// Lint returns the findings on missing and ineffective declarations. In a pod that may hang, these are also the policies that do not
// select it.
func Lint(findings []Finding) []Finding {
	hangs := slices.ContainsFunc(findings, func(f Finding) bool { return f.Reason == v1alpha1.ReasonMayHang })
	return filter(findings, func(f Finding) bool {
		switch f.Reason {
		case v1alpha1.ReasonNotSelected:
			return hangs
		case v1alpha1.ReasonContainerNotFound:
			return f.Severity == SeverityWarning
		}
		return slices.Contains(lintReasons, f.Reason)
	})
}

// IsJobType reports whether the restartPolicy lets the pod finish.
func IsJobType(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}
