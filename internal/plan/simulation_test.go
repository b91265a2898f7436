// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	seeds = 200
	// knownSeeds is the number of runs of each scenario with an operator that has learned about the kubelet.
	knownSeeds = 40
	horizon    = 40 * time.Minute
)

// simulation is one scenario: a pod, a node, a policy, and what goes wrong.
type simulation struct {
	policy   corev1.RestartPolicy
	mainCode int32
	sidecars []simulated

	virtual, daemonless, future, kruise bool
	// known means that the operator takes the kubelet for one that ignores phases.
	known bool
	// forgetful means that the node's provider ignores a pod's annotations, so each of its status writes restores the old
	// ones. On any virtual node, a status write in flight does so.
	forgetful bool
	// guarded means that the admission policy keeps a written phase.
	guarded bool
	// denies makes OpenKruise's webhook deny every CRR. silentFor is how long its daemon does not respond.
	denies          bool
	silentFor       time.Duration
	quickUnpullable bool
	// lastResort and maxGrace are the operator's flags of mode PodPhase. The pod's grace period is 30 seconds.
	lastResort bool
	maxGrace   time.Duration
	// interruptedFor is how long after the end of the main container the kubelet receives nothing from the API server. Its
	// own writes succeed.
	interruptedFor time.Duration
	// nodeBehind is how far the node's clock is behind the operator's.
	nodeBehind time.Duration
	// restless makes the kubelet write the pod's status every second, because the result of a probe keeps changing.
	restless bool
	// stale and crashes are each on for half of the seeds.
	stale, crashes bool

	// want is the expected phase at the end. It is empty if the pod must be stuck with the reason stuck.
	want  corev1.PodPhase
	stuck v1alpha1.Reason
	// alone means that only the main container may leave an exit code other than 0.
	alone bool
	// smooth means that no attempt may fail.
	smooth bool
	// maxWrites bounds the writes of all attempts.
	maxWrites int
	// shows is what a single operator that does not crash must learn about the kubelet, if anything.
	shows plan.PhaseEvidence
}

type simulated struct {
	manner  manner
	sidecar resolve.Sidecar
	// command, unless empty, is not covered by the quick-exit image.
	command string
}

func (s simulation) declared() []resolve.Sidecar {
	var all []resolve.Sidecar
	for _, sidecar := range s.sidecars {
		all = append(all, sidecar.sidecar)
	}
	return all
}

func one(m manner, changes ...func(*resolve.Sidecar)) []simulated {
	return []simulated{{manner: m, sidecar: sidecar("proxy", changes...)}}
}

// uncovered is one polite sidecar whose command the quick-exit image does not cover.
func uncovered(changes ...func(*resolve.Sidecar)) []simulated {
	return []simulated{{manner: polite, sidecar: sidecar("proxy", changes...), command: "/app/server"}}
}

// simulations returns the scenarios by name. Each runs with many seeds.
func simulations() map[string]simulation {
	all := map[string]simulation{
		"silent daemon, Respect, no image: stuck": {
			policy: never, sidecars: one(polite, respect, noImage), kruise: true, silentFor: 24 * time.Hour, stuck: v1alpha1.ReasonStuck, maxWrites: 10,
		},
		"silent daemon that recovers: the CRR ends the sidecar late": {
			policy: never, sidecars: one(polite, respect, noImage), kruise: true, silentFor: 10 * minute, want: corev1.PodSucceeded, maxWrites: 8,
		},
		"silent daemon: the phase ends the sidecar": {
			policy: never, sidecars: one(deaf), kruise: true, silentFor: 24 * time.Hour, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"silent daemon, Respect: falls back to the image": {
			policy: never, sidecars: one(rude, respect), kruise: true, silentFor: 24 * time.Hour, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"Respect: exit code 7 fails the pod": {
			policy: never, sidecars: one(rude, respect), kruise: true, want: corev1.PodFailed, maxWrites: 2,
		},
		"Respect, restarting sidecar: falls back to the image": {
			policy: onFailure, sidecars: one(rude, respect), kruise: true, want: corev1.PodSucceeded, maxWrites: 4,
		},
		"Respect, restarting sidecar, no image: stuck after one CRR": {
			policy: onFailure, sidecars: one(rude, respect, noImage), kruise: true, stuck: v1alpha1.ReasonStuck, maxWrites: 1,
		},
		"Respect, crash-looping sidecar: falls back to the image": {
			policy: onFailure, sidecars: one(crashing, respect), kruise: true, want: corev1.PodSucceeded, maxWrites: 4,
		},
		"kubelet ignores the phase: falls back to the image": {
			policy: never, sidecars: one(polite), future: true, want: corev1.PodSucceeded, maxWrites: 5, shows: plan.PhaseIgnored,
		},
		"kubelet ignores a guarded phase: guard off, then the image": {
			policy: never, sidecars: one(polite), future: true, guarded: true, want: corev1.PodSucceeded, maxWrites: 3, shows: plan.PhaseIgnored,
		},
		"guarded phase: written once despite in-flight updates": {
			policy: onFailure, sidecars: one(deaf), restless: true, guarded: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true, shows: plan.PhaseHonored,
		},
		"kubelet ignores the phase, no image: stuck": {
			policy: never, sidecars: one(polite, noImage), future: true, stuck: v1alpha1.ReasonStuck, maxWrites: 4,
		},
		"kubelet ignores the phase, Kruise: the sidecar ends": {
			policy: never, sidecars: one(polite), future: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 6, shows: plan.PhaseIgnored,
		},
		"kubelet ignores the phase, Kruise, exit code 7: succeeds": {
			policy: never, sidecars: one(rude), future: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 6, shows: plan.PhaseIgnored,
		},
		"kubelet ignores a guarded phase, Kruise: the sidecar ends": {
			policy: never, sidecars: one(polite), future: true, guarded: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 2, shows: plan.PhaseUnreported,
		},
		"kubelet sees the phase 30 s late: succeeds": {
			policy: never, sidecars: one(rude), guarded: true, kruise: true, interruptedFor: 28 * time.Second, want: corev1.PodSucceeded, maxWrites: 1, smooth: true, shows: plan.PhaseHonored,
		},
		"kubelet sees the phase after its deadline: succeeds": {
			policy: never, sidecars: one(rude), guarded: true, kruise: true, interruptedFor: 90 * time.Second, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"kubelet sees the phase late under OnFailure: succeeds": {
			policy: onFailure, sidecars: one(rude), guarded: true, kruise: true, interruptedFor: 90 * time.Second, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"Kruise's webhook denies CRRs: the phase ends the sidecar": {
			policy: never, sidecars: one(rude), kruise: true, denies: true, want: corev1.PodSucceeded, maxWrites: 4,
		},
		"virtual node: the image is swapped": {
			policy: never, sidecars: one(deaf), virtual: true, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"virtual node, unpullable quick-exit image: stuck": {
			policy: onFailure, sidecars: one(polite), virtual: true, quickUnpullable: true, stuck: v1alpha1.ReasonStuck, maxWrites: 2,
		},
		"no daemon on the node: the phase": {
			policy: never, sidecars: one(rude), daemonless: true, kruise: true, quickUnpullable: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"no daemon on the node, three sidecars: the phase": {
			policy: onFailure, daemonless: true, kruise: true, quickUnpullable: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
			sidecars: []simulated{{manner: polite, sidecar: sidecar("a")}, {manner: rude, sidecar: sidecar("b")}, {manner: deaf, sidecar: sidecar("c")}},
		},
		"no daemon on the node, phase ignored: the image": {
			policy: never, sidecars: one(polite), daemonless: true, kruise: true, future: true, want: corev1.PodSucceeded, maxWrites: 5, shows: plan.PhaseIgnored,
		},
		"no daemon on the node, mode Image": {
			policy: never, sidecars: one(rude, mode(image)), daemonless: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"lost record on a virtual node: polite sidecar": {
			policy: never, sidecars: one(polite), virtual: true, forgetful: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"lost record on a virtual node: rude sidecar, OnFailure": {
			policy: onFailure, sidecars: one(rude), virtual: true, forgetful: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"lost record on a virtual node: sidecar never started": {
			policy: onFailure, sidecars: one(unpullably), virtual: true, forgetful: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"lost record on a virtual node: different drains": {
			policy: never, virtual: true, forgetful: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
			sidecars: []simulated{
				{manner: polite, sidecar: sidecar("a")}, {manner: rude, sidecar: sidecar("b", drain(10*time.Second))}, {manner: deaf, sidecar: sidecar("c", drain(2*minute))},
			},
		},
		"lost record on a virtual node: unpullable image": {
			policy: onFailure, sidecars: one(rude), virtual: true, forgetful: true, quickUnpullable: true, stuck: v1alpha1.ReasonStuck, maxWrites: 1,
		},
		"unpullable quick-exit image: falls back to the phase": {
			policy: onFailure, sidecars: one(polite, mode(image)), quickUnpullable: true, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"unpullable quick-exit image, no fallback: stuck": {
			policy: onFailure, sidecars: one(polite, mode(image), noFallback), quickUnpullable: true, stuck: v1alpha1.ReasonStuck, maxWrites: 2,
		},
		"command not covered: falls back to the phase": {
			policy: onFailure, sidecars: uncovered(mode(image)), want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"command not covered, no fallback: stuck": {
			policy: never, sidecars: uncovered(mode(image), noFallback), kruise: true, stuck: v1alpha1.ReasonCommandNotCovered,
		},
		"command not covered, virtual node: stuck": {
			policy: never, sidecars: uncovered(), virtual: true, stuck: v1alpha1.ReasonNoUsableMode,
		},
		"command not covered, kubelet ignores the phase: stuck": {
			policy: never, sidecars: uncovered(), future: true, stuck: v1alpha1.ReasonStuck, maxWrites: 4,
		},
		"three deaf sidecars: one CRR stops them in turn": {
			policy: never, kruise: true, want: corev1.PodFailed, maxWrites: 1, smooth: true,
			sidecars: []simulated{{manner: deaf, sidecar: sidecar("a", respect)}, {manner: deaf, sidecar: sidecar("b", respect)}, {manner: deaf, sidecar: sidecar("c", respect)}},
		},
		"three deaf sidecars: one swap stops them in turn": {
			policy: never, virtual: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
			sidecars: []simulated{{manner: deaf, sidecar: sidecar("a")}, {manner: deaf, sidecar: sidecar("b")}, {manner: deaf, sidecar: sidecar("c")}},
		},
		"two CRRs in turn: neither fails": {
			policy: never, kruise: true, want: corev1.PodFailed, maxWrites: 2, smooth: true,
			sidecars: []simulated{{manner: deaf, sidecar: sidecar("a", respect, noImage)}, {manner: deaf, sidecar: sidecar("b", respect, noImage, drain(5*time.Second))}},
		},
		"three CRRs in turn: none fails": {
			policy: never, kruise: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
			sidecars: []simulated{
				{manner: polite, sidecar: sidecar("a", respect, noImage)}, {manner: polite, sidecar: sidecar("b", respect, noImage, drain(5*time.Second))},
				{manner: polite, sidecar: sidecar("c", respect, noImage, drain(20*time.Second))},
			},
		},
		"a respected sidecar ends before the phase is written": {
			policy: never, kruise: true, want: corev1.PodSucceeded, maxWrites: 7,
			sidecars: []simulated{{manner: deaf, sidecar: sidecar("a")}, {manner: polite, sidecar: sidecar("b", respect)}, {manner: unpullably, sidecar: sidecar("c")}},
		},
		"different drains": {
			policy: onFailure, want: corev1.PodSucceeded, maxWrites: 5,
			sidecars: []simulated{{manner: rude, sidecar: sidecar("a", drain(10*time.Second))}, {manner: deaf, sidecar: sidecar("b", drain(minute))}},
		},
		"failed main, Kruise": {
			policy: never, mainCode: 3, sidecars: one(deaf), kruise: true, want: corev1.PodFailed, alone: true, maxWrites: 1, smooth: true,
		},
		"failed main, no Kruise": {
			policy: never, mainCode: 3, sidecars: one(rude), want: corev1.PodFailed, alone: true, maxWrites: 1, smooth: true,
		},
		"failed main, Kruise, sidecars of every behavior": {
			policy: never, mainCode: 3, kruise: true, want: corev1.PodFailed, alone: true, maxWrites: 2,
			sidecars: []simulated{
				{manner: deaf, sidecar: sidecar("a")}, {manner: rude, sidecar: sidecar("b", mode(image))}, {manner: unpullably, sidecar: sidecar("c", drain(5*time.Second))},
			},
		},
		"failed main, unpullable quick-exit image": {
			policy: never, mainCode: 3, sidecars: one(rude), kruise: true, quickUnpullable: true, want: corev1.PodFailed, maxWrites: 2,
		},
		"failed main, command not covered": {
			policy: never, mainCode: 3, sidecars: uncovered(), kruise: true, want: corev1.PodFailed, alone: true, maxWrites: 2, smooth: true,
		},
		"long grace period, Kruise": {
			policy: never, sidecars: one(rude), kruise: true, maxGrace: time.Second, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"long grace period, Kruise, mode CRR": {
			policy: never, sidecars: one(deaf, mode(crr)), kruise: true, maxGrace: time.Second, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"long grace period, Kruise, no image: the exit code counts": {
			policy: never, sidecars: one(rude, noImage), kruise: true, maxGrace: time.Second, want: corev1.PodFailed, maxWrites: 1,
		},
		"long grace period, Kruise, OnFailure": {
			policy: onFailure, sidecars: one(rude), kruise: true, maxGrace: time.Second, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"long grace period, no Kruise": {
			policy: onFailure, sidecars: one(deaf), maxGrace: time.Second, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"long grace period, only the phase: no usable mode": {
			policy: never, sidecars: one(rude, noImage), maxGrace: time.Second, stuck: v1alpha1.ReasonNoUsableMode,
		},
		"long grace period, policy with mode PodPhase: the phase": {
			policy: never, sidecars: one(rude, mode(podPhase), byPolicy), maxGrace: time.Second, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"long grace period, one of two sidecars exempt": {
			policy: never, kruise: true, maxGrace: time.Second, want: corev1.PodSucceeded, maxWrites: 5,
			sidecars: []simulated{{manner: rude, sidecar: sidecar("a", noImage)}, {manner: rude, sidecar: sidecar("b", mode(podPhase), byPolicy)}},
		},
		"last-resort phase, Kruise": {
			policy: never, sidecars: one(rude), kruise: true, lastResort: true, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"last-resort phase, OnFailure": {
			policy: onFailure, sidecars: one(deaf), kruise: true, lastResort: true, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"last-resort phase, command not covered": {
			policy: never, sidecars: uncovered(), lastResort: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"last-resort phase, unpullable quick-exit image": {
			policy: onFailure, sidecars: one(rude), lastResort: true, quickUnpullable: true, want: corev1.PodSucceeded, maxWrites: 4,
		},
		"unknown mode": {
			policy: never, sidecars: one(rude, mode("Freeze")), want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"unknown mode, no fallback: stuck": {
			policy: never, sidecars: one(rude, mode("Freeze"), noFallback), kruise: true, stuck: v1alpha1.ReasonUnknownSetting,
		},
		"failed main, only the phase is usable": {
			policy: never, mainCode: 3, sidecars: one(rude, noImage), want: corev1.PodFailed, maxWrites: 4,
		},
		"status changes every second: the phase is written": {
			policy: onFailure, sidecars: one(rude), restless: true, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"node clock behind: the phase is written to a stable pod": {
			policy: onFailure, sidecars: one(rude), nodeBehind: 10 * minute, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"node clock behind, status changes every second": {
			policy: onFailure, sidecars: one(deaf), nodeBehind: 10 * minute, restless: true, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"node clock behind, Kruise, Respect": {
			policy: never, sidecars: one(polite, respect), nodeBehind: 10 * minute, kruise: true, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"node clock ahead": {
			policy: onFailure, sidecars: one(rude), nodeBehind: -10 * minute, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"node clock behind, mode Image": {
			policy: never, sidecars: one(rude, mode(image)), nodeBehind: 50 * minute, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"node clock ahead, mode Image": {
			policy: onFailure, sidecars: one(rude, mode(image)), nodeBehind: -50 * minute, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"status changes every second, Kruise": {
			policy: onFailure, sidecars: one(deaf), restless: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 6,
		},
		"no usable mode: stuck": {
			policy: never, sidecars: one(polite, respect, noImage), stuck: v1alpha1.ReasonNoUsableMode,
		},
	}
	// Whatever a sidecar does, the main container determines the outcome of its pod.
	for _, policy := range []corev1.RestartPolicy{never, onFailure} {
		for _, m := range []manner{polite, rude, deaf, crashing, unpullably} {
			if m == crashing && policy == never {
				continue // it has ended long before
			}
			for _, kruise := range []bool{false, true} {
				name := fmt.Sprintf("%s, %s sidecar, kruise=%t", policy, m, kruise)
				all[name] = simulation{policy: policy, sidecars: one(m), kruise: kruise, want: corev1.PodSucceeded, maxWrites: 3, smooth: !kruise}
			}
		}
	}
	return all
}

func TestSimulation(t *testing.T) {
	for name, scenario := range simulations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writes, seeds := 0, seedsOf(t)
			for seed := range seeds {
				m := newModel(scenario.mixed(seed), seed)
				m.simulate()
				writes = max(writes, m.operator.writes)
				m.mustBeFine(t, seed)
			}
			t.Logf("%d schedules, at most %d writes", seeds, writes)
		})
	}
}

// seedsOf returns the number of runs of each scenario. SCHEDULES sets the sum.
func seedsOf(t *testing.T) uint64 {
	t.Helper()
	value := os.Getenv("SCHEDULES")
	if value == "" {
		return seeds
	}
	schedules, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		t.Fatalf("SCHEDULES: %v", err)
	}
	return schedules/uint64(len(simulations())) + 1
}

// mixed returns the scenario with stale caches and crashes in half of the seeds each.
func (s simulation) mixed(seed uint64) simulation {
	s.stale, s.crashes = seed%2 == 1, seed%4 >= 2
	return s
}

// simulate runs the scenario and judges its end.
func (m *model) simulate() {
	m.kubelet.boot()
	m.run(horizon)
	m.judge()
}

// newModel returns the scenario's cluster before its start.
func newModel(s simulation, seed uint64) *model {
	m := &model{scenario: s, random: rand.New(rand.NewPCG(seed, 1)), now: done.Add(-5 * time.Second)}
	containers := []container{creating("main")}
	m.kubelet = &kubelet{m: m, images: map[string]string{"main": "main:v1"}, processes: []*process{{name: "main", manner: works, image: "main:v1"}}}
	for _, side := range s.sidecars {
		name := side.sidecar.Container
		c := creating(name)
		if side.command != "" {
			c = c.runs(side.command)
		}
		containers = append(containers, c)
		m.kubelet.images[name] = name + ":v1"
		m.kubelet.processes = append(m.kubelet.processes, &process{name: name, manner: side.manner, image: name + ":v1", missing: side.command != ""})
	}
	m.kruise, m.operator = &kruise{m: m}, &operator{m: m}
	m.pod = newPod(s.policy, containers...)
	for i := range m.pod.Spec.Containers {
		m.pod.Spec.Containers[i].Image = m.pod.Spec.Containers[i].Name + ":v1"
	}
	m.pod.Status.Phase = corev1.PodPending
	return m
}

// judge records what is wrong with the final state.
func (m *model) judge() {
	s := m.scenario
	if main := m.kubelet.process("main"); main.runs != 1 {
		m.fail("the main container ran %d times", main.runs)
	}
	if writes := m.operator.writes; writes > s.maxWrites {
		m.fail("%d writes, more than %d", writes, s.maxWrites)
	}
	m.judgeEvidence()
	m.operator.seen = m.view()
	last := plan.Next(m.operator.snapshot(), m.now)
	if s.want == "" {
		if last.Stage != plan.StageStuck || last.Reason != s.stuck || last.Message == "" {
			m.fail("the pod is %s (%s), and not stuck: %s", last.Stage, last.Reason, last.Message)
		}
		return
	}
	for _, p := range m.kubelet.processes {
		if p.state == "running" || p.state == "stopping" {
			m.fail("%s still runs", p.name)
		}
		if s.alone && p.name != "main" && p.code != 0 {
			m.fail("%s has left exit code %d", p.name, p.code)
		}
	}
	if m.pod.Status.Phase != s.want {
		m.fail("the pod reads %s, not %s", m.pod.Status.Phase, s.want)
	}
	if len(last.Actions) > 0 || last.Stage != plan.StageTerminated && last.Stage != plan.StageIgnored {
		m.fail("the final state is not stable: %+v", briefly(last))
	}
}

// judgeEvidence records what the operator has learned wrongly about the kubelet, or has not learned.
func (m *model) judgeEvidence() {
	s := m.scenario
	for _, evidence := range m.operator.evidence {
		if s.future != (evidence != plan.PhaseHonored) {
			m.fail("the kubelet ignores phases: %t, but the pod shows: phase %s", s.future, evidence)
		}
	}
	if s.shows != "" && !s.crashes && !slices.Contains(m.operator.evidence, s.shows) {
		m.fail("the pod has not shown: phase %s, but only %v", s.shows, m.operator.evidence)
	}
}

// Once the operator has learned that the kubelet ignores phases, a pod with another usable mode does not wait for an attempt that
// fails. A pod without one is not worse off.
func TestSimulationKubeletKnownToIgnorePhases(t *testing.T) {
	simulateKnown(t, func(s *simulation) bool {
		s.smooth = s.shows != ""
		return s.future
	}, func(m *model) {
		if m.scenario.shows == "" {
			return
		}
		if m.phase != nil {
			m.fail("the phase was written")
		}
		if ended := m.kubelet.lastEnd().Sub(done); ended > 15*time.Second {
			m.fail("the last container ended %s after the main container", ended)
		}
	})
}

// If the operator is wrong about the kubelet, each pod still ends, with the same outcome. The exceptions are pods whose quick-exit image
// cannot be pulled, and those in which only a sidecar with mode PodPhase permits the phase that hides another one's exit code.
func TestSimulationKubeletWronglyBelievedToIgnorePhases(t *testing.T) {
	simulateKnown(t, func(s *simulation) bool {
		s.smooth, s.alone, s.maxWrites = false, false, s.maxWrites+3
		return !s.future && !s.quickUnpullable && (s.maxGrace == 0 || len(s.sidecars) == 1)
	}, func(*model) {})
}

// simulateKnown runs the scenarios with an operator that takes the kubelet for one that ignores phases. change prepares a scenario, or
// leaves it out.
func simulateKnown(t *testing.T, change func(*simulation) bool, judge func(*model)) {
	t.Helper()
	for name, scenario := range simulations() {
		if !change(&scenario) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(knownSeeds) {
				s := scenario
				s.known, s.stale = true, seed%2 == 1
				m := newModel(s, seed)
				m.kubelet.boot()
				m.run(horizon)
				m.scenario.shows = ""
				m.judge()
				m.scenario.shows = s.shows
				judge(m)
				m.mustBeFine(t, seed)
			}
		})
	}
}

// TestTranscripts records what happens in a few scenarios for people to read.
func TestTranscripts(t *testing.T) {
	all := simulations()
	for file, name := range map[string]string{
		"pod-phase":           "OnFailure, deaf sidecar, kruise=false",
		"kruise":              "Never, rude sidecar, kruise=true",
		"comes-back":          "Respect, restarting sidecar: falls back to the image",
		"silent-daemon":       "silent daemon that recovers: the CRR ends the sidecar late",
		"future-kubelet":      "kubelet ignores the phase: falls back to the image",
		"guarded-phase":       "kubelet ignores a guarded phase: guard off, then the image",
		"virtual-node":        "three deaf sidecars: one swap stops them in turn",
		"respected-first":     "a respected sidecar ends before the phase is written",
		"record-taken-back":   "lost record on a virtual node: different drains",
		"nothing-can-end-it":  "no usable mode: stuck",
		"uncovered-command":   "command not covered: falls back to the phase",
		"failed-main":         "failed main, Kruise",
		"crash-after-a-write": "silent daemon: the phase ends the sidecar",
	} {
		t.Run(file, func(t *testing.T) {
			s, ok := all[name]
			if !ok {
				t.Fatalf("there is no scenario %q", name)
			}
			s.crashes = file == "crash-after-a-write"
			m := newModel(s, 2)
			m.simulate()
			got := name + "\n\n" + strings.Join(m.transcript, "\n") + "\n"
			path := filepath.Join("testdata", file+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("transcript (-want +got), update with -update:\n%s", diff)
			}
		})
	}
}
