// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
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
	f.Fuzz(checkFuzzed)
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
	pod := newPod(corev1.RestartPolicy(pick("Never", "OnFailure", "Never", "OnFailure", "Never", "OnFailure", "Always")))
	pod.Status.Phase = corev1.PodPhase(pick("Running", "Running", "Running", "Running", "Running", "Running", "Pending", "Succeeded", "Failed"))
	s := plan.Snapshot{Pod: pod}
	s.Node = plan.NodeKind(pick("Real", "Virtual", "", "Daemonless", "NotRead", "Real", "Real"))
	s.Capabilities = plan.Capabilities{CRRServed: next(2) == 0, EnabledModes: modes(plan.PodPhaseUse(pick("Enabled", "Disabled", "LastResort")))}
	s.Capabilities.MaxGracePeriod = []time.Duration{time.Hour, 10 * time.Second, 0}[next(3)]
	for _, change := range []func(*plan.Snapshot){
		mirror, withClaim, beingDeleted, evicted, condition(corev1.DisruptionTarget), condition(corev1.AllContainersRestarting),
	} {
		if next(32) == 1 {
			change(&s)
		}
	}
	names := fuzzContainers(next, &s)
	for i := range next(4) {
		a := plan.Attempt{Mode: v1alpha1.Mode(pick("CRR", "Image")), Number: i, Started: done.Add(time.Duration(next(120)) * time.Second)}
		a.RestartCounts = map[string]int32{}
		for _, name := range names {
			if next(2) == 0 {
				a.RestartCounts[name] = int32(next(3)) - 1
			}
		}
		if a.Mode == crr && next(3) == 1 {
			a.Finished = a.Started.Add(time.Duration(next(60)) * time.Second)
		}
		s.Attempts = append(s.Attempts, a)
	}
	fuzzMark(next, &s)
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
	return s, now
}

// fuzzContainers adds containers to the pod and returns their names.
func fuzzContainers(next func(int) int, s *plan.Snapshot) []string {
	pick := func(options ...string) string { return options[next(len(options))] }
	var names []string
	for i := range 2 + next(4) {
		name := fmt.Sprintf("c%d", i)
		names = append(names, name)
		isMain, state := i == 0 && next(16) != 1 || i > 1 && next(3) == 0, next(6)
		if isMain && next(6) != 1 {
			state = 4 + state%2 // mostly done
		}
		c := statesOf(name)[state]
		switch next(8) {
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
		s.Pod.Spec.Containers = append(s.Pod.Spec.Containers, c.spec)
		s.Pod.Status.ContainerStatuses = append(s.Pod.Status.ContainerStatuses, c.status)
		if isMain {
			s.View.Mains = append(s.View.Mains, name)
			continue
		}
		s.View.Sidecars = append(s.View.Sidecars, sidecar(name, func(sidecar *resolve.Sidecar) {
			sidecar.Mode = v1alpha1.Mode(pick("Auto", "CRR", "Image", "PodPhase", "Freeze"))
			sidecar.ExitCodePolicy = v1alpha1.ExitCodePolicy(pick("Ignore", "Respect", "Ignore", "Ignore", "Ignore", "RespectUnlessKilled"))
			sidecar.Fallback = v1alpha1.Fallback(pick("Enabled", "Disabled", "Enabled", "Disabled", "Sometimes"))
			if next(2) == 0 {
				byPolicy(sidecar)
			}
			sidecar.Image = pick(quickExit, "")
			sidecar.QuickExitPaths = quickexit.CoverageOf([][]string{nil, {"default", "/app/server"}, {"*"}, {"/app/server"}, {"server"}}[next(5)]...)
			sidecar.Drain, sidecar.Order = time.Duration(next(3))*20*time.Second, int32(next(3))
		}))
	}
	return names
}

// fuzzMark gives the pod any label and annotations that somebody may write, and the operator any memory of it.
func fuzzMark(next func(int) int, s *plan.Snapshot) {
	value := func(values ...string) string {
		return values[next(len(values))] + []string{"/pod-uid", "/other", ""}[next(3)]
	}
	if next(4) != 0 {
		marked(s)
	}
	if next(3) == 1 {
		s.Pod.Labels = map[string]string{v1alpha1.LabelOutcome: []string{v1alpha1.OutcomeMainContainers, "Other"}[next(2)]}
		annotate(s.Pod, v1alpha1.AnnotationMainContainers, value("Running", "Succeeded", "Decided", ""))
	}
	if next(3) == 1 {
		annotate(s.Pod, v1alpha1.AnnotationEnd, value("PodPhase", "Failed", "Other", ""))
	}
	if next(4) == 1 {
		annotate(s.Pod, v1alpha1.AnnotationIgnoredExitCodes, value("", "c0", "c0,c1", ",,"))
	}
	s.AssumeMarked = next(8) == 1
	s.MarkAfter, s.MarkedAt = []time.Time{{}, done.Add(time.Duration(next(120)) * time.Second)}[next(2)], done.Add(time.Duration(next(120))*time.Second)
	s.DrainsSince = []time.Time{{}, done, done.Add(time.Duration(next(60)) * time.Second)}[next(3)]
	if isTerminal(s.Pod) {
		s.PhaseSince = done.Add(time.Duration(next(60)) * time.Second)
	}
}

// TestRandomStates tries what FuzzNext would, with bytes from a fixed seed.
func TestRandomStates(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		data := make([]byte, 200)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		checkFuzzed(t, data)
	}
}

func checkFuzzed(t *testing.T, data []byte) {
	t.Helper()
	s, now := fuzzedSnapshot(bytesOf(data))
	decision := plan.Next(s, now)
	if problem := checkInvariants(s, now, decision) + isDeterministic(s, now, decision); problem != "" {
		t.Errorf("%s\nin %s\ndecision: %+v", problem, tell(s, now.Sub(done)), briefly(decision))
	}
	if problem := brokenByFinish(s, now); problem != "" {
		t.Errorf("Finish breaks invariants: %s\nin %s", problem, tell(s, now.Sub(done)))
	}
}
