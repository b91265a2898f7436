// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
)

// The pod and the namespaced policy of every scenario. A cluster policy has the name of the namespace that it selects.
const (
	podName    = "job-1"
	policyName = "mesh"
)

// declaration is what declares the sidecars of a scenario.
type declaration string

const (
	byPolicy        declaration = "a policy"
	byClusterPolicy declaration = "a cluster policy"
	byBoth          declaration = "a policy that overrides a cluster policy"
	byVariables     declaration = "environment variables"
)

// openKruise is the state of OpenKruise in a scenario.
type openKruise string

const (
	kruiseWorks  openKruise = ""
	kruiseAbsent openKruise = "absent"
	kruiseDenies openKruise = "denies each request"
)

// scenario is a pod with a main container and two sidecars, their declarations, and what happens to them.
type scenario struct {
	name          string
	restartPolicy corev1.RestartPolicy
	declared      declaration
	spec          v1alpha1.PolicySpec
	// exitCode is the exit code of a stopped sidecar.
	exitCode int32
	// interlude is a user's change of the policy while sidecars are being terminated; nil means none.
	interlude func(context.Context, client.Client, *v1alpha1.SidecarTerminationPolicy) error
	// mains are the exit codes of the main container's runs; nil means 0.
	mains []int32
	// kruise is the state of OpenKruise.
	kruise openKruise
	// nodeLabels are the labels of the pod's node.
	nodeLabels map[string]string
	// undecided leaves out the admission policy that decides the outcome of pods.
	undecided bool
	// restartRules are those of the main container.
	restartRules bool
	// unstarted makes the second sidecar's image unpullable, so that it has never started.
	unstarted bool
	// rare marks scenarios that every test runs, because only they reach some of the operator's writes, or have it decide the outcome.
	rare bool
}

// decidesTooLate reports whether a delayed operator decides the outcome after the kubelet has reported the exit of a sidecar as the failure of
// the pod, which only an admission policy prevents (docs/support.md).
func (s scenario) decidesTooLate() bool {
	return s.undecided && s.restartPolicy == corev1.RestartPolicyNever && s.exitCode != 0
}

func (s scenario) pod() *corev1.Pod {
	return podtest.New(func(p *corev1.Pod) {
		p.Spec.RestartPolicy = s.restartPolicy
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "logger", Image: "logger:v1"})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, podtest.Running("logger"))
		for i := range p.Status.ContainerStatuses {
			p.Status.ContainerStatuses[i].Image = p.Spec.Containers[i].Image
		}
		if s.unstarted {
			p.Status.ContainerStatuses[2] = corev1.ContainerStatus{
				Name: "logger", Image: "logger:v1",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
			}
		}
		if s.restartRules {
			p.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
			p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleActionRestart,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}
		if s.declared == byVariables {
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}, {Name: v1alpha1.EnvIgnoreExitCode, Value: "false"}}
			p.Spec.Containers[2].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminateWithImage, Value: quickExit}, {Name: v1alpha1.EnvIgnoreExitCode, Value: "false"}}
		}
	})
}

// policies returns the scenario's policies in the namespace.
func (s scenario) policies(namespace string) []client.Object {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: policyName}}
	policy.Spec.PolicySpec = s.spec
	clusterPolicy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	clusterPolicy.Spec.PolicySpec = s.spec
	clusterPolicy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	switch s.declared {
	case byClusterPolicy:
		return []client.Object{clusterPolicy}
	case byBoth:
		clusterPolicy.Spec.Mode = v1alpha1.ModeImage
		return []client.Object{policy, clusterPolicy}
	case byVariables:
		return nil
	}
	return []client.Object{policy}
}

// adder appends a scenario to a list.
type adder func(name string, restart corev1.RestartPolicy, exitCode int32, proxy, logger v1alpha1.Mode, exitCodePolicy v1alpha1.ExitCodePolicy, change ...func(*scenario))

// scenarios cover every mode with each restart policy and each setting of exit codes, policy changes by users, and everything that
// makes a mode unusable.
func scenarios() []scenario {
	var list []scenario
	add := func(name string, restart corev1.RestartPolicy, exitCode int32, proxy, logger v1alpha1.Mode, exitCodePolicy v1alpha1.ExitCodePolicy, change ...func(*scenario)) {
		s := scenario{name: fmt.Sprintf("%s, %s, %s, exit %d", name, restart, exitCodePolicy, exitCode), restartPolicy: restart, declared: byPolicy, exitCode: exitCode, mains: []int32{0}}
		s.spec.Sidecars = []v1alpha1.Sidecar{{Name: "logger"}, {Name: "proxy"}}
		s.spec.Sidecars[0].Mode, s.spec.Sidecars[1].Mode, s.spec.ExitCodePolicy = logger, proxy, exitCodePolicy
		for _, c := range change {
			c(&s)
		}
		list = append(list, s)
	}
	addPlain(add)
	addObstructed(add)
	return list
}

// addPlain adds the scenarios in which the main container succeeds on a real node with OpenKruise.
func addPlain(add adder) {
	const (
		never, onFailure = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
		ignore, respect  = v1alpha1.ExitCodePolicyIgnore, v1alpha1.ExitCodePolicyRespect
		auto, request    = v1alpha1.ModeAuto, v1alpha1.ModeCRR
		image, phase     = v1alpha1.ModeImage, v1alpha1.ModePodPhase
	)
	// A failed sidecar whose exit code counts would run again.
	sidecarCode := map[v1alpha1.ExitCodePolicy]int32{ignore: 143, respect: 0}
	for _, restart := range []corev1.RestartPolicy{never, onFailure} {
		for _, exitCodePolicy := range []v1alpha1.ExitCodePolicy{ignore, respect} {
			add("Auto", restart, 0, auto, auto, exitCodePolicy)
			add("CRR", restart, sidecarCode[exitCodePolicy], request, request, exitCodePolicy)
			add("Image", restart, 143, image, image, exitCodePolicy)
			add("CRR and Image", restart, 0, request, image, exitCodePolicy)
		}
		add("PodPhase", restart, 143, phase, phase, ignore)
		add("PodPhase and CRR", restart, 143, phase, request, ignore)
		add("DryRun", restart, 143, auto, auto, ignore, func(s *scenario) { s.spec.Enforcement = v1alpha1.EnforcementDryRun })
	}
	for _, declared := range []declaration{byClusterPolicy, byBoth} {
		change := func(s *scenario) { s.declared = declared }
		add(fmt.Sprintf("CRR by %s", declared), never, 0, request, request, respect, change)
		add(fmt.Sprintf("PodPhase by %s", declared), onFailure, 143, phase, phase, ignore, change)
	}
	add("CRR and Image by variables", never, 0, auto, auto, respect, func(s *scenario) { s.declared = byVariables })
	for _, s := range []struct {
		mode, later    v1alpha1.Mode
		exitCodePolicy v1alpha1.ExitCodePolicy
	}{{request, image, respect}, {phase, image, ignore}, {image, request, respect}} {
		add(fmt.Sprintf("%s, then deleted", s.mode), never, 0, s.mode, s.mode, s.exitCodePolicy, func(other *scenario) {
			other.interlude = func(ctx context.Context, c client.Client, policy *v1alpha1.SidecarTerminationPolicy) error {
				return c.Delete(ctx, policy)
			}
		})
		add(fmt.Sprintf("%s, then %s", s.mode, s.later), never, 0, s.mode, s.mode, s.exitCodePolicy, func(other *scenario) {
			other.interlude = func(ctx context.Context, c client.Client, policy *v1alpha1.SidecarTerminationPolicy) error {
				policy.Spec.Sidecars[0].Mode, policy.Spec.Sidecars[1].Mode = s.later, s.later
				return c.Update(ctx, policy)
			}
		})
	}
}

// addObstructed adds the scenarios in which the main container fails, or something stands in the way of a mode.
func addObstructed(add adder) {
	const (
		never, onFailure     = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
		ignore, respect      = v1alpha1.ExitCodePolicyIgnore, v1alpha1.ExitCodePolicyRespect
		auto, request, phase = v1alpha1.ModeAuto, v1alpha1.ModeCRR, v1alpha1.ModePodPhase
	)
	fails := func(s *scenario) { s.mains = []int32{3} }
	failsOnce := func(s *scenario) { s.mains = []int32{1, 0} }
	without := func(s *scenario) { s.kruise = kruiseAbsent }
	denied := func(s *scenario) { s.kruise = kruiseDenies }
	virtual := func(s *scenario) { s.nodeLabels = virtualKubelet }
	unstarted := func(s *scenario) { s.unstarted = true }
	drained := func(s *scenario) { s.spec.Sidecars[1].DrainSeconds = ptr.To[int32](60) }
	alone := func(s *scenario) { s.spec.Fallback = v1alpha1.FallbackDisabled }
	rare := func(s *scenario) { s.rare = true }
	undecided := func(s *scenario) { s.undecided = true }

	add("Auto of a main that fails", never, 0, auto, auto, ignore, fails)
	add("PodPhase of a main that fails", never, 143, phase, phase, ignore, fails)
	add("Auto of a main that fails, without OpenKruise", never, 0, auto, auto, ignore, fails, without)
	add("CRR of a main that fails once", onFailure, 0, request, request, respect, failsOnce)
	add("PodPhase of a main that fails once", onFailure, 143, phase, phase, ignore, failsOnce)
	add("Auto on a virtual node", never, 0, auto, auto, ignore, virtual)
	add("CRR and PodPhase on a virtual node", onFailure, 143, request, phase, ignore, virtual)
	add("Auto that OpenKruise denies", never, 0, auto, auto, ignore, denied)
	add("CRR that OpenKruise denies", never, 143, request, request, ignore, denied)
	add("CRR without OpenKruise", never, 143, request, request, ignore, without)
	add("Auto without OpenKruise", onFailure, 143, auto, auto, respect, without)
	add("Auto of a sidecar that has not started", never, 0, auto, auto, ignore, unstarted)
	add("Auto of a sidecar that has not started", never, 0, auto, auto, respect, unstarted)
	// The second CRR replaces the first one, whose container has ended.
	add("CRR, one drains", never, 0, request, request, respect, drained, rare)
	add("PodPhase, one drains", onFailure, 143, phase, phase, ignore, drained)
	add("PodPhase alone on a virtual node", never, 0, phase, phase, ignore, virtual, alone)
	add("PodPhase with restart rules", never, 143, phase, phase, ignore, func(s *scenario) { s.restartRules = true })
	add("CRR with restart rules", never, 143, request, request, ignore, func(s *scenario) { s.restartRules = true })
	add("Auto, outcome not decided", onFailure, 0, auto, auto, ignore, undecided)
	add("CRR, outcome not decided", never, 143, request, request, ignore, undecided, rare)
	add("PodPhase, outcome not decided", onFailure, 143, phase, phase, ignore, undecided)
}
