// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// FuzzNext makes a snapshot from bytes and holds the decision to the invariants. There may be any number of containers
// and attempts, in any order.
func FuzzNext(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 0, 1, 0, 0, 0, 2, 4, 3, 1, 1, 1, 0, 0, 0, 20, 0})
	f.Add([]byte{0, 2, 0, 1, 1, 0, 3, 5, 4, 0, 0, 1, 2, 1, 0, 1, 0, 10, 2, 0, 1, 30, 0, 3, 1, 0, 5})
	f.Add([]byte("a pod with a main container and sidecars that have been tried before"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, now := fuzzedSnapshot(bytesOf(data))
		decision := plan.Next(s, now)
		if problem := checkInvariants(s, now, decision) + isDeterministic(s, now, decision); problem != "" {
			t.Errorf("%s\nin %s\ndecision: %+v", problem, tell(s, now.Sub(done)), briefly(decision))
		}
		if problem := brokenByFinish(s, now); problem != "" {
			t.Errorf("Finish breaks invariants: %s\nin %s", problem, tell(s, now.Sub(done)))
		}
	})
}

// bytesOf returns a source of numbers below a bound. Each byte gives one number, and zeros follow the last.
func bytesOf(data []byte) func(bound int) int {
	return func(bound int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % bound
	}
}

func fuzzedSnapshot(next func(int) int) (plan.Snapshot, time.Time) {
	pick := func(options ...string) string { return options[next(len(options))] }
	pod := newPod(corev1.RestartPolicy(pick("Never", "OnFailure", "Always")))
	pod.Status.Phase = corev1.PodPhase(pick("Running", "Pending", "Succeeded", "Failed"))
	s := observed(pod, nil)
	s.Node = plan.NodeKind(pick("Real", "Virtual", "", "Daemonless"))
	s.Capabilities = plan.Capabilities{CRRServed: next(2) == 0, EnabledModes: modes(plan.PodPhaseUse(pick("Enabled", "Disabled", "LastResort")))}
	s.Capabilities.MaxGracePeriod = []time.Duration{time.Hour, 10 * time.Second, 0}[next(3)]
	if next(4) == 1 {
		pod.Annotations = map[string]string{v1alpha1.AnnotationPhaseGuard: "Enabled"}
	}
	if next(16) == 1 {
		mirror(&s)
	}
	if next(16) == 1 {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	}
	var names []string
	for i := range next(6) {
		name := fmt.Sprintf("c%d", i)
		names = append(names, name)
		c := statesOf(name)[next(6)]
		switch next(6) {
		case 1:
			c = c.restarting(corev1.ContainerRestartPolicyNever, rule(corev1.ContainerRestartRuleAction(pick("Restart", "RestartAllContainers")),
				corev1.ContainerRestartRuleOnExitCodesOperator(pick("In", "NotIn")), int32(next(8))))
		case 2:
			c = c.restarting(corev1.ContainerRestartPolicy(pick("Always", "OnFailure", "Never")))
		}
		if c.status.ContainerID != "" {
			c.status.RestartCount = int32(next(4))
		}
		if next(4) == 1 {
			c = c.swapped()
		}
		if word := pick("", "/bin/sh", "/app/server"); word != "" {
			c = c.runs(word)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c.spec)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, c.status)
		if next(3) == 0 {
			s.View.Mains = append(s.View.Mains, name)
			continue
		}
		s.View.Sidecars = append(s.View.Sidecars, sidecar(name, func(sidecar *resolve.Sidecar) {
			sidecar.Mode = v1alpha1.Mode(pick("Auto", "CRR", "Image", "PodPhase", "Freeze"))
			sidecar.ExitCodes = v1alpha1.ExitCodes(pick("Ignore", "Respect", "Ignore", "Respect", "RespectUnlessKilled"))
			sidecar.Fallback = v1alpha1.Fallback(pick("Enabled", "Disabled", "Enabled", "Disabled", "Sometimes"))
			if next(2) == 0 {
				byPolicy(sidecar)
			}
			sidecar.Image = pick(quickExit, "")
			sidecar.QuickExitPaths = quickexit.CoverageOf([][]string{nil, {"default", "/app/server"}, {"*"}, {"/app/server"}, {"server"}}[next(5)]...)
			sidecar.Drain = time.Duration(next(3)) * 20 * time.Second
		}))
	}
	for i := range next(5) {
		a := plan.Attempt{Mode: v1alpha1.Mode(pick("CRR", "Image", "PodPhase")), Number: i, Started: done.Add(time.Duration(next(120)) * time.Second)}
		a.For = a.Mode
		if a.Mode != podPhase {
			a.RestartCounts = map[string]int32{}
			for _, name := range names {
				if next(2) == 0 {
					a.RestartCounts[name] = int32(next(3)) - 1
				}
			}
		} else if slices.ContainsFunc(s.Attempts, func(earlier plan.Attempt) bool { return earlier.Mode == podPhase }) {
			continue // its annotation holds only one
		}
		if a.Mode == crr && next(3) == 1 {
			a.Finished = a.Started.Add(time.Duration(next(60)) * time.Second)
		}
		s.Attempts = append(s.Attempts, a)
	}
	s.UnchangedSince = done.Add(time.Duration(next(120)) * time.Second)
	now := done.Add(time.Duration(next(180)) * time.Duration(1+next(4)) * time.Second)
	for _, m := range []v1alpha1.Mode{crr, image, podPhase} {
		if next(4) == 1 {
			if s.Denied == nil {
				s.Denied = map[v1alpha1.Mode]string{}
			}
			s.Denied[m] = "denied"
		}
	}
	if next(16) == 1 {
		s.InvalidAnnotation = "unreadable"
	}
	s.ContainersUnchangedSince = s.UnchangedSince.Add(-time.Duration(next(60)) * time.Second)
	s.Kubelet.IgnoresPhase = next(4) == 1
	return s, now
}
