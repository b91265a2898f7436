// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	seeds   = 200
	horizon = 40 * time.Minute
)

// simulation is one scenario: a pod, a node, a policy, and what goes wrong.
type simulation struct {
	policy   corev1.RestartPolicy
	mainCode int32
	sidecars []simulated

	virtual, daemonless, future, kruise bool
	// forgetful means that the node's provider never takes over the annotations of a pod, and so takes them back with each
	// status that it writes. Any virtual node does so with a status that was under way.
	forgetful bool
	// guarded means that the admission policy keeps a written phase.
	guarded bool
	// refuses has Kruise's webhook refuse every request. silentFor is how long its daemon does not answer.
	refuses         bool
	silentFor       time.Duration
	quickUnpullable bool
	// lastResort and maxGrace are the operator's flags of mode PodPhase. The pod's grace period is 30 seconds.
	lastResort bool
	maxGrace   time.Duration
	// interruptedFor is how long after the end of the main container the kubelet hears nothing from the API server. What
	// it writes itself gets through.
	interruptedFor time.Duration
	// nodeBehind is by how much the node's clock is behind the operator's.
	nodeBehind time.Duration
	// restless has the kubelet write the pod's status every second, for a probe that comes and goes.
	restless bool
	// stale and crashes are switched on for half of the seeds each.
	stale, crashes bool

	// want is the phase in which the pod is to end; empty when the pod is to be stuck, for the reason.
	want  corev1.PodPhase
	stuck v1alpha1.Reason
	// alone means that no sidecar may leave an exit code beside that of the main container.
	alone bool
	// smooth means that no attempt may fail.
	smooth bool
	// maxWrites bounds the writes of all attempts.
	maxWrites int
}

type simulated struct {
	manner manner
	target resolve.Target
	// command, unless empty, is one that the quick-exit image does not have.
	command string
}

func (s simulation) targets() []resolve.Target {
	var all []resolve.Target
	for _, sidecar := range s.sidecars {
		all = append(all, sidecar.target)
	}
	return all
}

func one(m manner, changes ...func(*resolve.Target)) []simulated {
	return []simulated{{manner: m, target: sidecar("proxy", changes...)}}
}

// uncovered is one polite sidecar that the quick-exit image cannot be started for.
func uncovered(changes ...func(*resolve.Target)) []simulated {
	return []simulated{{manner: polite, target: sidecar("proxy", changes...), command: "/app/server"}}
}

// simulations are told by sentences. Each is run with many seeds.
func simulations() map[string]simulation {
	all := map[string]simulation{
		"a daemon that stays silent leaves a respected sidecar stuck": {
			policy: never, sidecars: one(polite, respect, noImage), kruise: true, silentFor: 24 * time.Hour, stuck: v1alpha1.ReasonStuck, maxWrites: 10,
		},
		"a daemon that answers again ends the sidecar late": {
			policy: never, sidecars: one(polite, respect, noImage), kruise: true, silentFor: 10 * minute, want: corev1.PodSucceeded, maxWrites: 8,
		},
		"a silent daemon is no matter where the phase ends the sidecar": {
			policy: never, sidecars: one(deaf), kruise: true, silentFor: 24 * time.Hour, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"a silent daemon is followed by a swapped image where exit codes are respected": {
			policy: never, sidecars: one(rude, respect), kruise: true, silentFor: 24 * time.Hour, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"a respected sidecar that exits 7 fails the pod": {
			policy: never, sidecars: one(rude, respect), kruise: true, want: corev1.PodFailed, maxWrites: 2,
		},
		"a respected sidecar that comes back is ended by a swapped image": {
			policy: onFailure, sidecars: one(rude, respect), kruise: true, want: corev1.PodSucceeded, maxWrites: 4,
		},
		"a respected sidecar that comes back and has no image is stuck, and is not stopped again and again": {
			policy: onFailure, sidecars: one(rude, respect, noImage), kruise: true, stuck: v1alpha1.ReasonStuck, maxWrites: 1,
		},
		"a crash-looping sidecar that Kruise takes for stopped is ended by a swapped image": {
			policy: onFailure, sidecars: one(crashing, respect), kruise: true, want: corev1.PodSucceeded, maxWrites: 4,
		},
		"a kubelet that ignores the phase is followed by a swapped image": {
			policy: never, sidecars: one(polite), future: true, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"a kubelet that ignores a guarded phase is followed by a swapped image once the guard is off": {
			policy: never, sidecars: one(polite), future: true, guarded: true, want: corev1.PodSucceeded, maxWrites: 3,
		},
		"a guarded phase is written once, whatever the kubelet has in flight": {
			policy: onFailure, sidecars: one(deaf), restless: true, guarded: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"a kubelet that ignores the phase leaves a pod without an image stuck": {
			policy: never, sidecars: one(polite, noImage), future: true, stuck: v1alpha1.ReasonStuck, maxWrites: 4,
		},
		"a kubelet that ignores the phase is no matter where Kruise ends the sidecar": {
			policy: never, sidecars: one(polite), future: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 6,
		},
		"a kubelet that ignores the phase, and a sidecar whose exit code would count after a request": {
			policy: never, sidecars: one(rude), future: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 6,
		},
		"a kubelet that ignores a guarded phase is no matter where Kruise ends the sidecar": {
			policy: never, sidecars: one(polite), future: true, guarded: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"a kubelet that hears of the phase half a minute late does not have the sidecar's exit code count": {
			policy: never, sidecars: one(rude), guarded: true, kruise: true, interruptedFor: 28 * time.Second, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"a kubelet that hears of the phase after its deadline does not have the sidecar's exit code count": {
			policy: never, sidecars: one(rude), guarded: true, kruise: true, interruptedFor: 90 * time.Second, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"a kubelet that hears of the phase late, and restarts what fails": {
			policy: onFailure, sidecars: one(rude), guarded: true, kruise: true, interruptedFor: 90 * time.Second, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"Kruise's webhook refuses, and the phase ends the sidecar": {
			policy: never, sidecars: one(rude), kruise: true, refuses: true, want: corev1.PodSucceeded, maxWrites: 4,
		},
		"a virtual node runs the swapped image": {
			policy: never, sidecars: one(deaf), virtual: true, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"a virtual node that cannot pull the image and restarts is stuck": {
			policy: onFailure, sidecars: one(polite), virtual: true, quickUnpullable: true, stuck: v1alpha1.ReasonStuck, maxWrites: 2,
		},
		"a node without Kruise's daemon has the phase written, although the cluster has Kruise": {
			policy: never, sidecars: one(rude), daemonless: true, kruise: true, quickUnpullable: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"a node without Kruise's daemon, three sidecars and an image that cannot be pulled": {
			policy: onFailure, daemonless: true, kruise: true, quickUnpullable: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
			sidecars: []simulated{{manner: polite, target: sidecar("a")}, {manner: rude, target: sidecar("b")}, {manner: deaf, target: sidecar("c")}},
		},
		"a node without Kruise's daemon whose kubelet ignores the phase is followed by a swapped image": {
			policy: never, sidecars: one(polite), daemonless: true, kruise: true, future: true, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"a declared image on a node without Kruise's daemon": {
			policy: never, sidecars: one(rude, mode(image)), daemonless: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"a virtual node that takes the record of each swap back, and a sidecar that is polite": {
			policy: never, sidecars: one(polite), virtual: true, forgetful: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"a virtual node that takes the record of each swap back, and a sidecar that is rude and would be restarted": {
			policy: onFailure, sidecars: one(rude), virtual: true, forgetful: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"a virtual node that takes the record of each swap back, and a sidecar that never started": {
			policy: onFailure, sidecars: one(unpullably), virtual: true, forgetful: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
		},
		"a virtual node that takes the record of each swap back, and sidecars that drain for different times": {
			policy: never, virtual: true, forgetful: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
			sidecars: []simulated{
				{manner: polite, target: sidecar("a")}, {manner: rude, target: sidecar("b", drain(10*time.Second))}, {manner: deaf, target: sidecar("c", drain(2*minute))},
			},
		},
		"a virtual node that takes the record of each swap back, and an image that cannot be pulled": {
			policy: onFailure, sidecars: one(rude), virtual: true, forgetful: true, quickUnpullable: true, stuck: v1alpha1.ReasonStuck, maxWrites: 1,
		},
		"an image that cannot be pulled is followed by the phase": {
			policy: onFailure, sidecars: one(polite, mode(image)), quickUnpullable: true, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"an image that cannot be pulled, without fallback, is stuck": {
			policy: onFailure, sidecars: one(polite, mode(image), noFallback), quickUnpullable: true, stuck: v1alpha1.ReasonStuck, maxWrites: 2,
		},
		"an image that does not have the command is followed by the phase": {
			policy: onFailure, sidecars: uncovered(mode(image)), want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"an image that does not have the command, without fallback, leaves the sidecar as it is": {
			policy: never, sidecars: uncovered(mode(image), noFallback), kruise: true, stuck: v1alpha1.ReasonCommandNotCovered,
		},
		"a virtual node whose image does not have the command is stuck": {
			policy: never, sidecars: uncovered(), virtual: true, stuck: v1alpha1.ReasonNoUsableMode,
		},
		"a kubelet that ignores the phase and an image that does not have the command leave the pod stuck": {
			policy: never, sidecars: uncovered(), future: true, stuck: v1alpha1.ReasonStuck, maxWrites: 4,
		},
		"three deaf sidecars are stopped by Kruise one after the other, within one attempt": {
			policy: never, kruise: true, want: corev1.PodFailed, maxWrites: 1, smooth: true,
			sidecars: []simulated{{manner: deaf, target: sidecar("a", respect)}, {manner: deaf, target: sidecar("b", respect)}, {manner: deaf, target: sidecar("c", respect)}},
		},
		"three deaf sidecars are swapped one after the other, within one attempt": {
			policy: never, virtual: true, want: corev1.PodSucceeded, maxWrites: 1, smooth: true,
			sidecars: []simulated{{manner: deaf, target: sidecar("a")}, {manner: deaf, target: sidecar("b")}, {manner: deaf, target: sidecar("c")}},
		},
		"a second request follows the first, and neither fails": {
			policy: never, kruise: true, want: corev1.PodFailed, maxWrites: 2, smooth: true,
			sidecars: []simulated{{manner: deaf, target: sidecar("a", respect, noImage)}, {manner: deaf, target: sidecar("b", respect, noImage, drain(5*time.Second))}},
		},
		"each of three requests follows the one before, and none fails": {
			policy: never, kruise: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
			sidecars: []simulated{
				{manner: polite, target: sidecar("a", respect, noImage)}, {manner: polite, target: sidecar("b", respect, noImage, drain(5*time.Second))},
				{manner: polite, target: sidecar("c", respect, noImage, drain(20*time.Second))},
			},
		},
		"a respected sidecar is ended before the phase is written for the others": {
			policy: never, kruise: true, want: corev1.PodSucceeded, maxWrites: 7,
			sidecars: []simulated{{manner: deaf, target: sidecar("a")}, {manner: polite, target: sidecar("b", respect)}, {manner: unpullably, target: sidecar("c")}},
		},
		"sidecars that drain for different times": {
			policy: onFailure, want: corev1.PodSucceeded, maxWrites: 5,
			sidecars: []simulated{{manner: rude, target: sidecar("a", drain(10*time.Second))}, {manner: deaf, target: sidecar("b", drain(minute))}},
		},
		"a failed main container, with Kruise": {
			policy: never, mainCode: 3, sidecars: one(deaf), kruise: true, want: corev1.PodFailed, alone: true, maxWrites: 1, smooth: true,
		},
		"a failed main container, without Kruise": {
			policy: never, mainCode: 3, sidecars: one(rude), want: corev1.PodFailed, alone: true, maxWrites: 1, smooth: true,
		},
		"a failed main container, sidecars of every manner, with Kruise": {
			policy: never, mainCode: 3, kruise: true, want: corev1.PodFailed, alone: true, maxWrites: 2,
			sidecars: []simulated{
				{manner: deaf, target: sidecar("a")}, {manner: rude, target: sidecar("b", mode(image))}, {manner: unpullably, target: sidecar("c", drain(5*time.Second))},
			},
		},
		"a failed main container, and an image that cannot be pulled": {
			policy: never, mainCode: 3, sidecars: one(rude), kruise: true, quickUnpullable: true, want: corev1.PodFailed, maxWrites: 2,
		},
		"a failed main container, and an image that does not have the command": {
			policy: never, mainCode: 3, sidecars: uncovered(), kruise: true, want: corev1.PodFailed, alone: true, maxWrites: 2, smooth: true,
		},
		"a long grace period, with Kruise": {
			policy: never, sidecars: one(rude), kruise: true, maxGrace: time.Second, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"a long grace period, with Kruise and a declared request": {
			policy: never, sidecars: one(deaf, mode(crr)), kruise: true, maxGrace: time.Second, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"a long grace period, with Kruise and without an image, has the exit code count": {
			policy: never, sidecars: one(rude, noImage), kruise: true, maxGrace: time.Second, want: corev1.PodFailed, maxWrites: 1,
		},
		"a long grace period, with Kruise, where what fails is restarted": {
			policy: onFailure, sidecars: one(rude), kruise: true, maxGrace: time.Second, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"a long grace period without Kruise": {
			policy: onFailure, sidecars: one(deaf), maxGrace: time.Second, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"a long grace period with nothing but the phase": {
			policy: never, sidecars: one(rude, noImage), maxGrace: time.Second, stuck: v1alpha1.ReasonNoUsableMode,
		},
		"a long grace period with a policy that declares the phase": {
			policy: never, sidecars: one(rude, mode(podPhase), byPolicy), maxGrace: time.Second, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"a long grace period with a sidecar that is exempt and one that is not": {
			policy: never, kruise: true, maxGrace: time.Second, want: corev1.PodSucceeded, maxWrites: 5,
			sidecars: []simulated{{manner: rude, target: sidecar("a", noImage)}, {manner: rude, target: sidecar("b", mode(podPhase), byPolicy)}},
		},
		"the phase as the last resort, with Kruise": {
			policy: never, sidecars: one(rude), kruise: true, lastResort: true, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"the phase as the last resort, where what fails is restarted": {
			policy: onFailure, sidecars: one(deaf), kruise: true, lastResort: true, want: corev1.PodSucceeded, alone: true, maxWrites: 1, smooth: true,
		},
		"the phase as the last resort, and an image that does not have the command": {
			policy: never, sidecars: uncovered(), lastResort: true, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"the phase as the last resort, and an image that cannot be pulled": {
			policy: onFailure, sidecars: one(rude), lastResort: true, quickUnpullable: true, want: corev1.PodSucceeded, maxWrites: 4,
		},
		"a mode that is not known": {
			policy: never, sidecars: one(rude, mode("Freeze")), want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"a mode that is not known, without fallback": {
			policy: never, sidecars: one(rude, mode("Freeze"), noFallback), kruise: true, stuck: v1alpha1.ReasonUnknownSetting,
		},
		"a failed main container, with nothing but the phase": {
			policy: never, mainCode: 3, sidecars: one(rude, noImage), want: corev1.PodFailed, maxWrites: 4,
		},
		"a pod whose status changes all the time does not have the phase wait for ever": {
			policy: onFailure, sidecars: one(rude), restless: true, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"a node whose clock is behind has the phase written to a quiet pod": {
			policy: onFailure, sidecars: one(rude), nodeBehind: 10 * minute, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"a node whose clock is behind, and a pod whose status changes all the time": {
			policy: onFailure, sidecars: one(deaf), nodeBehind: 10 * minute, restless: true, want: corev1.PodSucceeded, maxWrites: 5,
		},
		"a node whose clock is behind, with Kruise and a respected sidecar": {
			policy: never, sidecars: one(polite, respect), nodeBehind: 10 * minute, kruise: true, want: corev1.PodSucceeded, maxWrites: 2,
		},
		"a node whose clock is ahead": {
			policy: onFailure, sidecars: one(rude), nodeBehind: -10 * minute, want: corev1.PodSucceeded, maxWrites: 3, smooth: true,
		},
		"a pod whose status changes all the time, with Kruise": {
			policy: onFailure, sidecars: one(deaf), restless: true, kruise: true, want: corev1.PodSucceeded, maxWrites: 6,
		},
		"nothing can end the sidecar": {
			policy: never, sidecars: one(polite, respect, noImage), stuck: v1alpha1.ReasonNoUsableMode,
		},
	}
	// Whatever a sidecar does, its pod ends with the outcome of the main container.
	for _, policy := range []corev1.RestartPolicy{never, onFailure} {
		for _, m := range []manner{polite, rude, deaf, crashing, unpullably} {
			if m == crashing && policy == never {
				continue // it has ended long before
			}
			for _, kruise := range []bool{false, true} {
				name := fmt.Sprintf("%s, a sidecar that is %s, kruise=%t", policy, m, kruise)
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
			writes := 0
			for seed := range uint64(seeds) {
				s := scenario
				s.stale, s.crashes = seed%2 == 1, seed%4 >= 2
				w := simulate(s, seed)
				writes = max(writes, w.operator.writes)
				if len(w.problems) > 0 {
					t.Fatalf("seed %d:\n%s\n\n%s", seed, strings.Join(w.problems, "\n"), strings.Join(w.transcript, "\n"))
				}
			}
			t.Logf("%d seeds, at most %d writes", seeds, writes)
		})
	}
}

// simulate runs the scenario and judges its end.
func simulate(s simulation, seed uint64) *world {
	w := &world{scenario: s, random: rand.New(rand.NewPCG(seed, 1)), now: done.Add(-5 * time.Second)}
	containers := []container{creating("main")}
	w.kubelet = &kubelet{w: w, images: map[string]string{"main": "main:v1"}, processes: []*process{{name: "main", manner: works, image: "main:v1"}}}
	for _, side := range s.sidecars {
		name := side.target.Container
		c := creating(name)
		if side.command != "" {
			c = c.runs(side.command)
		}
		containers = append(containers, c)
		w.kubelet.images[name] = name + ":v1"
		w.kubelet.processes = append(w.kubelet.processes, &process{name: name, manner: side.manner, image: name + ":v1", missing: side.command != ""})
	}
	w.kruise, w.operator = &kruise{w: w}, &operator{w: w}
	w.pod = newPod(s.policy, containers...)
	for i := range w.pod.Spec.Containers {
		w.pod.Spec.Containers[i].Image = w.pod.Spec.Containers[i].Name + ":v1"
	}
	w.pod.Status.Phase = corev1.PodPending
	w.kubelet.boot()
	w.run(horizon)
	w.judge()
	return w
}

// judge says what is wrong with the end.
func (w *world) judge() {
	s := w.scenario
	if main := w.kubelet.process("main"); main.runs != 1 {
		w.fail("the main container ran %d times", main.runs)
	}
	if w.operator.writes > s.maxWrites {
		w.fail("%d writes, more than %d", w.operator.writes, s.maxWrites)
	}
	w.operator.seen = w.view()
	last := plan.Next(w.operator.snapshot(), w.now)
	if s.want == "" {
		if last.Stage != plan.StageStuck || last.Reason != s.stuck || last.Message == "" {
			w.fail("the pod is %s (%s), and not stuck: %s", last.Stage, last.Reason, last.Message)
		}
		return
	}
	for _, p := range w.kubelet.processes {
		if p.state == "running" || p.state == "stopping" {
			w.fail("%s still runs", p.name)
		}
		if s.alone && p.name != "main" && p.code != 0 {
			w.fail("%s has left exit code %d", p.name, p.code)
		}
	}
	if w.pod.Status.Phase != s.want {
		w.fail("the pod reads %s, not %s", w.pod.Status.Phase, s.want)
	}
	if len(last.Actions) > 0 || last.Stage != plan.StageTerminated && last.Stage != plan.StageIgnored {
		w.fail("the end is no fixpoint: %+v", briefly(last))
	}
}

// TestTranscripts prints what happens in a few scenarios, for people to read.
func TestTranscripts(t *testing.T) {
	all := simulations()
	for file, name := range map[string]string{
		"pod-phase":           "OnFailure, a sidecar that is deaf, kruise=false",
		"kruise":              "Never, a sidecar that is rude, kruise=true",
		"comes-back":          "a respected sidecar that comes back is ended by a swapped image",
		"silent-daemon":       "a daemon that answers again ends the sidecar late",
		"future-kubelet":      "a kubelet that ignores the phase is followed by a swapped image",
		"guarded-phase":       "a kubelet that ignores a guarded phase is followed by a swapped image once the guard is off",
		"virtual-node":        "three deaf sidecars are swapped one after the other, within one attempt",
		"respected-first":     "a respected sidecar is ended before the phase is written for the others",
		"record-taken-back":   "a virtual node that takes the record of each swap back, and sidecars that drain for different times",
		"nothing-can-end-it":  "nothing can end the sidecar",
		"uncovered-command":   "an image that does not have the command is followed by the phase",
		"failed-main":         "a failed main container, with Kruise",
		"crash-after-a-write": "a silent daemon is no matter where the phase ends the sidecar",
	} {
		t.Run(file, func(t *testing.T) {
			s, ok := all[name]
			if !ok {
				t.Fatalf("there is no scenario %q", name)
			}
			s.crashes = file == "crash-after-a-write"
			w := simulate(s, 2)
			got := name + "\n\n" + strings.Join(w.transcript, "\n") + "\n"
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
