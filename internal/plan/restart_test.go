// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// TestMainContainerMayRunAgain covers the kubelet's rules: the pod's restartPolicy, the container's own restartPolicy
// (KEP-5307) and its restartPolicyRules (KEP-5307, KEP-5532).
func TestMainContainerMayRunAgain(t *testing.T) {
	const (
		restart    = corev1.ContainerRestartRuleActionRestart
		restartAll = corev1.ContainerRestartRuleActionRestartAllContainers
		in         = corev1.ContainerRestartRuleOnExitCodesOpIn
		notIn      = corev1.ContainerRestartRuleOnExitCodesOpNotIn

		ownNever     = corev1.ContainerRestartPolicyNever
		ownOnFailure = corev1.ContainerRestartPolicyOnFailure
		ownAlways    = corev1.ContainerRestartPolicyAlways
	)
	rulesAlone := exited("main", 42)
	rulesAlone.spec.RestartPolicyRules = []corev1.ContainerRestartRule{rule(restart, in, 42)}
	withoutCodes := corev1.ContainerRestartRule{Action: restart}

	tests := map[string]struct {
		policy corev1.RestartPolicy
		main   container
		again  bool
	}{
		"Never: not after success":                                  {never, exited("main", 0), false},
		"Never: not after failure":                                  {never, exited("main", 7), false},
		"OnFailure: not after success":                              {onFailure, exited("main", 0), false},
		"OnFailure: after failure":                                  {onFailure, exited("main", 7), true},
		"container policy Never under OnFailure: not after failure": {onFailure, exited("main", 7).restarting(ownNever), false},
		"container policy OnFailure under Never: after failure":     {never, exited("main", 7).restarting(ownOnFailure), true},
		"container policy OnFailure under Never: not after success": {never, exited("main", 0).restarting(ownOnFailure), false},
		"container policy Always: after success":                    {never, exited("main", 0).restarting(ownAlways), true},
		"rule In with the code restarts":                            {never, exited("main", 42).restarting(ownNever, rule(restart, in, 41, 42)), true},
		"rule In without the code: the policy decides":              {never, exited("main", 43).restarting(ownNever, rule(restart, in, 41, 42)), false},
		"rule NotIn with the code: the policy decides":              {never, exited("main", 42).restarting(ownNever, rule(restart, notIn, 42)), false},
		"rule NotIn without the code restarts":                      {never, exited("main", 43).restarting(ownNever, rule(restart, notIn, 42)), true},
		"rule NotIn restarts after success, too":                    {never, exited("main", 0).restarting(ownNever, rule(restart, notIn, 42)), true},
		"a later rule counts":                                       {never, exited("main", 7).restarting(ownNever, rule(restart, in, 1), rule(restart, in, 7)), true},
		"a rule that restarts all containers restarts this one":     {never, exited("main", 7).restarting(ownNever, rule(restartAll, in, 7)), true},
		"a rule without exit codes matches nothing":                 {never, exited("main", 7).restarting(ownNever, withoutCodes), false},
		"a rule with an unknown operator matches nothing":           {never, exited("main", 7).restarting(ownNever, rule(restart, "Between", 7)), false},
		"rules without a container policy do not count":             {never, rulesAlone, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(test.policy, test.main, running("proxy"))
			decision := plan.Next(observed(pod, oneProxy()), done)
			if again := decision.Reason == v1alpha1.ReasonMainContainersRunning; again != test.again {
				t.Errorf("may run again: got %t, want %t (%s)", again, test.again, decision.Message)
			}
		})
	}
}

// TestKubeletIgnoresContainerRestartPolicy covers kubelets that use the pod's restartPolicy alone, because they are older than
// Kubernetes 1.35. A newer API server accepts the containers' fields.
func TestKubeletIgnoresContainerRestartPolicy(t *testing.T) {
	const (
		ownNever     = corev1.ContainerRestartPolicyNever
		ownOnFailure = corev1.ContainerRestartPolicyOnFailure
	)
	restartOn42 := rule(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 42)
	tests := map[string]struct {
		kubelet string
		node    plan.NodeKind
		policy  corev1.RestartPolicy
		main    container
		again   bool
	}{
		"1.34, Never: OnFailure is ignored":      {"v1.34.10", plan.NodeReal, never, exited("main", 7).restarting(ownOnFailure), false},
		"1.34, Never: a rule is ignored":         {"v1.34.10", plan.NodeReal, never, exited("main", 42).restarting(ownNever, restartOn42), false},
		"1.34, OnFailure: Never is ignored":      {"v1.34.10", plan.NodeReal, onFailure, exited("main", 7).restarting(ownNever), true},
		"1.34 of a provider":                     {"v1.34.10-eks-a737599", plan.NodeReal, never, exited("main", 7).restarting(ownOnFailure), false},
		"1.34 without OpenKruise's daemon":       {"v1.34.10", plan.NodeDaemonless, never, exited("main", 7).restarting(ownOnFailure), false},
		"1.35: the container's policy counts":    {"v1.35.0", plan.NodeReal, never, exited("main", 7).restarting(ownOnFailure), true},
		"1.35 alpha counts as 1.35":              {"v1.35.0-alpha.1", plan.NodeReal, never, exited("main", 7).restarting(ownOnFailure), true},
		"2.0: the container's policy counts":     {"v2.0.1", plan.NodeReal, never, exited("main", 7).restarting(ownOnFailure), true},
		"unknown: waiting is the safe side":      {"", plan.NodeReal, never, exited("main", 7).restarting(ownOnFailure), true},
		"no version: waiting is the safe side":   {"v-unknown", plan.NodeReal, never, exited("main", 7).restarting(ownOnFailure), true},
		"virtual: the version is the provider's": {"v1.13.0", plan.NodeVirtual, never, exited("main", 7).restarting(ownOnFailure), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			snapshot := observed(newPod(test.policy, test.main, running("proxy")), oneProxy())
			snapshot.Node, snapshot.Kubelet.Version = test.node, test.kubelet
			if test.node == plan.NodeVirtual {
				ending(v1alpha1.EndExited)(&snapshot)
			}
			decision := plan.Next(snapshot, done)
			if again := decision.Reason == v1alpha1.ReasonMainContainersRunning; again != test.again {
				t.Errorf("may run again: got %t, want %t (%s)", again, test.again, decision.Message)
			}
			if snapshot.MainDone("main") == test.again {
				t.Errorf("MainDone: got %t", test.again)
			}
		})
	}
}

// A kubelet that declares its features, without the one for rules that restart all containers, ignores such rules.
func TestKubeletIgnoresRestartAll(t *testing.T) {
	declared := []string{"Other", "RestartAllContainersOnContainerExits"}
	restartAll := rule(corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn, 42)
	restart := rule(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 42)
	for name, test := range map[string]struct {
		kubelet plan.Kubelet
		node    plan.NodeKind
		ignored bool
	}{
		"declared":                {plan.Kubelet{Version: "v1.37.2", Features: declared}, plan.NodeReal, false},
		"others declared":         {plan.Kubelet{Version: "v1.37.2", Features: declared[:1]}, plan.NodeReal, true},
		"others of a provider":    {plan.Kubelet{Version: "v1.13.0", Features: declared[:1]}, plan.NodeVirtual, false},
		"1.35 declares none":      {plan.Kubelet{Version: "v1.35.0"}, plan.NodeReal, false},
		"1.34 ignores every rule": {plan.Kubelet{Version: "v1.34.10"}, plan.NodeReal, true},
	} {
		t.Run(name, func(t *testing.T) {
			ofMain := observed(newPod(never, exited("main", 42).restarting(corev1.ContainerRestartPolicyNever, restartAll, restart), running("proxy")), oneProxy())
			ofMain.Node, ofMain.Kubelet = test.node, test.kubelet
			if done := ofMain.MainDone("main"); done != test.ignored {
				t.Errorf("main container done: got %t", done)
			}
			ofSidecar := observed(finishedMain(never, running("proxy").restarting(corev1.ContainerRestartPolicyNever, restartAll)), oneProxy(mode(crr), noFallback))
			ofSidecar.Node, ofSidecar.Kubelet = test.node, test.kubelet
			if decision := plan.Next(ofSidecar, done); test.node == plan.NodeReal && (decision.Stage != plan.StageStuck) != test.ignored {
				t.Errorf("CRR of the sidecar: %s, %s", decision.Stage, decision.Message)
			}
		})
	}
}

// TestSidecarHasEnded applies the same rules to sidecars: a sidecar that the kubelet restarts has not ended.
func TestSidecarHasEnded(t *testing.T) {
	tests := map[string]struct {
		policy corev1.RestartPolicy
		proxy  container
		ended  bool
	}{
		"Never: any exit":                  {never, exited("proxy", 143), true},
		"OnFailure: success":               {onFailure, exited("proxy", 0), true},
		"OnFailure: failure":               {onFailure, exited("proxy", 143), false},
		"OnFailure: waiting to restart":    {onFailure, crashLooping("proxy"), false},
		"container policy Always: success": {never, exited("proxy", 0).restarting(corev1.ContainerRestartPolicyAlways), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := finishedMain(test.policy, test.proxy)
			decision := plan.Next(observed(pod, oneProxy(), assumeMarked), done)
			if ended := decision.Stage == plan.StageTerminated; ended != test.ended {
				t.Errorf("ended: got %t, want %t (%s)", ended, test.ended, decision.Message)
			}
		})
	}
}
