// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// TestMainContainerMayRunAgain holds the decision to the kubelet's rules: the pod's restartPolicy, the container's own
// one (KEP-5307) and the rules beside it (KEP-5307, KEP-5532).
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
		"Never: success is the end":                                       {never, exited("main", 0), false},
		"Never: failure is the end":                                       {never, exited("main", 7), false},
		"OnFailure: success is the end":                                   {onFailure, exited("main", 0), false},
		"OnFailure: failure is not":                                       {onFailure, exited("main", 7), true},
		"an own policy Never in a pod with OnFailure: failure is the end": {onFailure, exited("main", 7).restarting(ownNever), false},
		"an own policy OnFailure in a pod with Never: failure is not":     {never, exited("main", 7).restarting(ownOnFailure), true},
		"an own policy OnFailure in a pod with Never: success is":         {never, exited("main", 0).restarting(ownOnFailure), false},
		"an own policy Always: success is not the end":                    {never, exited("main", 0).restarting(ownAlways), true},
		"a rule In that lists the code restarts":                          {never, exited("main", 42).restarting(ownNever, rule(restart, in, 41, 42)), true},
		"a rule In that does not list the code leaves it to the policy":   {never, exited("main", 43).restarting(ownNever, rule(restart, in, 41, 42)), false},
		"a rule NotIn that lists the code leaves it to the policy":        {never, exited("main", 42).restarting(ownNever, rule(restart, notIn, 42)), false},
		"a rule NotIn that does not list the code restarts":               {never, exited("main", 43).restarting(ownNever, rule(restart, notIn, 42)), true},
		"a rule NotIn restarts after success as well":                     {never, exited("main", 0).restarting(ownNever, rule(restart, notIn, 42)), true},
		"a later rule counts":                                             {never, exited("main", 7).restarting(ownNever, rule(restart, in, 1), rule(restart, in, 7)), true},
		"a rule that restarts all containers restarts this one":           {never, exited("main", 7).restarting(ownNever, rule(restartAll, in, 7)), true},
		"a rule without exit codes matches nothing":                       {never, exited("main", 7).restarting(ownNever, withoutCodes), false},
		"a rule with an unknown operator matches nothing":                 {never, exited("main", 7).restarting(ownNever, rule(restart, "Between", 7)), false},
		"rules without an own policy do not count":                        {never, rulesAlone, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(test.policy, test.main, running("proxy"))
			decision := plan.Next(observed(pod, targets(sidecar("proxy"))), done)
			if again := decision.Reason == v1alpha1.ReasonMainContainersRunning; again != test.again {
				t.Errorf("may run again: got %t, want %t (%s)", again, test.again, decision.Message)
			}
		})
	}
}

// TestSidecarHasEnded applies the same rules to sidecars: one that the kubelet starts again has not ended.
func TestSidecarHasEnded(t *testing.T) {
	tests := map[string]struct {
		policy corev1.RestartPolicy
		proxy  container
		ended  bool
	}{
		"Never: any exit is the end":           {never, exited("proxy", 143), true},
		"OnFailure: success is the end":        {onFailure, exited("proxy", 0), true},
		"OnFailure: failure is not":            {onFailure, exited("proxy", 143), false},
		"OnFailure: waiting to restart is not": {onFailure, crashLooping("proxy"), false},
		"an own policy Always never ends":      {never, exited("proxy", 0).restarting(corev1.ContainerRestartPolicyAlways), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(test.policy, exited("main", 0), test.proxy)
			decision := plan.Next(observed(pod, targets(sidecar("proxy"))), done)
			if ended := decision.Stage == plan.StageTerminated; ended != test.ended {
				t.Errorf("ended: got %t, want %t (%s)", ended, test.ended, decision.Message)
			}
		})
	}
}
