// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

const (
	// maxRounds is the maximum number of rounds of a run. A run that needs more does not converge.
	maxRounds = 80
	// idleRounds is the number of consecutive idle rounds after which a run has converged. Time passes between them.
	idleRounds = 3
)

// disturbance is what goes wrong in a run.
type disturbance struct {
	// write returns the fault of a write; nil means no faults.
	write func(number int) fault
	// read returns by how many writes a read is stale, or its error; nil means neither.
	read func() (lag int, err error)
	// skip reports whether a reconcile of the pod is dropped; nil means none.
	skip func(number int) bool
	// clock is the offset of the operator's clock.
	clock time.Duration
}

// run is one pod of one policy from its start to its end, with everything that writes to it.
type run struct {
	*testing.T
	ctx         context.Context
	server      client.Client
	scenario    scenario
	disturbance disturbance

	node     node
	history  *history
	wire     *wire
	operator reconcilers
	offset   time.Duration // of the time in the run
	quiet    bool          // the last round was idle, so the caches are current

	reconciles, skips, failures, restarts int
	problems                              []string
}

// Now is the time in the run.
func (r *run) Now() time.Time                  { return time.Now().Add(r.offset + r.disturbance.clock) }
func (r *run) Since(t time.Time) time.Duration { return r.Now().Sub(t) }

// start starts an operator without states and with current caches.
func (r *run) start() {
	options := testOptions()
	options.Clock, options.StatusPeriod = r, 0
	reader := &lagging{Reader: r.server, history: r.history, lag: r.lag}
	limited := asOperator()
	limited.Wrap(func(next http.RoundTripper) http.RoundTripper {
		r.wire.next = next
		return r.wire
	})
	c, err := client.New(limited, client.Options{Scheme: scheme, Mapper: r.server.RESTMapper()})
	if err != nil {
		r.Fatal(err)
	}
	reporter := newReporter(&recordedEvents{}, r, func(resolve.PolicyRef) {})
	// These are never started: the run itself decides what OpenKruise serves.
	kinds := kruiseKinds{crrs: &optionalkind.Availability{}, pullJobs: &optionalkind.Availability{}}
	from := readers{live: unreliable{r.server, r.lag}, policies: reader, pods: reader}
	r.operator = newReconcilers(cached{c, reader}, from, kinds, reporter, options)
	all := r.operator
	all.pods.reader.crrServed = func() bool { return r.scenario.kruise != kruiseAbsent }
	all.pods.reader.Observers[0] = crr.Observer{Reader: reader}
}

func (r *run) lag() (int, error) {
	if r.disturbance.read == nil || r.quiet {
		return 0, nil
	}
	return r.disturbance.read()
}

func (r *run) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// record adds a version after a write of the resource.
func (r *run) record(resource string) {
	if err := r.history.record(r.ctx, resource); err != nil {
		r.Fatal(err)
	}
}

// toTheEnd runs rounds until the run has converged.
func (r *run) toTheEnd() {
	idle := 0
	// Only this loop reconciles: nothing has changed, and there was no requeue.
	unasked := false
	for range maxRounds {
		writes, versions, failures, skips := r.wire.number, len(r.history.versions), r.failures, r.skips
		requeue := r.reconcile()
		if unasked && r.wire.number > writes {
			r.problem("nothing would have brought the pod back for the writes %q", r.wire.sites[writes:])
		}
		unasked = false
		acted := r.interlude() || r.nodeActs()
		if acted || r.wire.number > writes || len(r.history.versions) > versions || r.failures > failures {
			// The caches catch up, whether the writes were applied or not.
			idle, r.quiet = 0, len(r.history.versions) == versions
			continue
		}
		// The caches are current and nobody acts, so only time can change anything.
		if r.quiet {
			unasked = requeue == 0 && r.skips == skips
			r.offset += plan.Soonest(requeue, 10*time.Minute)
			idle++
		}
		r.quiet = true
		if idle == idleRounds {
			return
		}
	}
	r.problem("no rest after %d rounds; writes %q", maxRounds, r.wire.sites)
}

func (r *run) nodeActs() bool {
	written, err := r.node.step(r.ctx, r.history.now())
	if err != nil {
		r.Fatal(err)
	}
	if written != "" {
		// A node's action takes time.
		r.offset += time.Second
		r.record(written)
	}
	return written != ""
}

// interlude makes the user's change of the scenario once sidecars are being terminated.
func (r *run) interlude() bool {
	if r.scenario.interlude == nil || r.killCount() == 0 {
		return false
	}
	for _, policy := range r.history.now().policies {
		if policy.Generation == 1 {
			if err := r.scenario.interlude(r.ctx, r.server, policy.DeepCopy()); err != nil {
				r.Fatal(err)
			}
			r.record("sidecarterminationpolicies")
			return true
		}
	}
	return false
}

// reconcile calls both reconcilers once, like a work queue, and returns the requeue delay.
func (r *run) reconcile() time.Duration {
	var requeue time.Duration
	r.reconciles++
	if r.disturbance.skip != nil && r.disturbance.skip(r.reconciles) {
		r.skips++
	} else {
		requeue = r.checked("pod", func(o reconcilers) (ctrl.Result, error) {
			return o.pods.Reconcile(r.ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: r.history.namespace, Name: podName}})
		})
	}
	for _, ref := range []resolve.PolicyRef{
		{Kind: resolve.KindNamespaced, Namespace: r.history.namespace, Name: policyName},
		{Kind: resolve.KindCluster, Name: r.history.namespace},
	} {
		requeue = plan.Soonest(requeue, r.checked("policy", func(o reconcilers) (ctrl.Result, error) { return o.policies.Reconcile(r.ctx, ref) }))
	}
	return requeue
}

// checked calls a reconciler. A fault that reached the operator must result in an error or a requeue.
func (r *run) checked(what string, call func(reconcilers) (ctrl.Result, error)) time.Duration {
	r.wire.last = noFault
	result, err := call(r.operator)
	met := r.wire.last
	switch {
	case errors.Is(err, reconcile.TerminalError(nil)):
		r.problem("%s: gave up: %v", what, err)
	case met == crashed:
		r.restarts++
		r.start()
		return 0
	case met != noFault && err == nil && result.IsZero():
		r.problem("%s: %s was skipped", what, met)
	}
	if err != nil {
		r.failures++
	}
	return result.RequeueAfter
}

// kill is an accepted request to stop a container.
type kill struct{ By, Container string }

// kills lists the accepted requests to stop containers.
func (r *run) kills() []kill {
	var list []kill
	known := map[types.UID]bool{}
	for i, v := range r.history.versions {
		for _, request := range v.requests {
			if known[request.UID] {
				continue
			}
			known[request.UID] = true
			for _, container := range request.Spec.Containers {
				list = append(list, kill{"CRR", container.Name})
			}
		}
		if i == 0 {
			continue
		}
		for j := range min(len(v.pods), len(r.history.versions[i-1].pods)) {
			list = append(list, killsBetween(&r.history.versions[i-1].pods[j], &v.pods[j])...)
		}
	}
	slices.SortFunc(list, func(a, b kill) int { return strings.Compare(a.By+a.Container, b.By+b.Container) })
	return list
}

func (r *run) killCount() int { return len(r.kills()) }

func killsBetween(before, after *corev1.Pod) []kill {
	var list []kill
	for i, container := range after.Spec.Containers {
		if container.Image != before.Spec.Containers[i].Image {
			list = append(list, kill{"Image", container.Name})
		}
	}
	if plan.IsTearingDown(after) && !plan.HasTerminalPhase(before) {
		list = append(list, kill{"PodPhase", "*"})
	}
	return list
}

// checkHistory checks the invariants in every version.
func (r *run) checkHistory() {
	for i := 1; i < len(r.history.versions); i++ {
		before, after := r.history.versions[i-1].pods, r.history.versions[i].pods
		for j := range min(len(before), len(after)) {
			if plan.HasTerminalPhase(&before[j]) && after[j].Status.Phase != before[j].Status.Phase {
				r.problem("the phase went from %s to %s", before[j].Status.Phase, after[j].Status.Phase)
			}
		}
	}
	for _, k := range r.kills() {
		if isMain(k.Container) {
			r.problem("a main container must not be stopped: %+v", k)
		}
	}
}

// outcome is the result of a run. Two runs of a scenario must have the same one.
type outcome struct {
	Phase      corev1.PodPhase
	Containers []string
	Record     string
	Kills      []kill
	Stops      map[string]int
	Policy     []string
	// Totals count transitions. A crash may lose some.
	Totals []string
}

func (r *run) outcome() outcome {
	v := r.history.now()
	o := outcome{Kills: r.kills(), Stops: r.node.stops}
	for i := range v.pods {
		pod := &v.pods[i]
		o.Phase = pod.Status.Phase
		for _, container := range pod.Spec.Containers {
			status := statusOf(pod, container.Name)
			state := "running"
			if end := status.State.Terminated; end != nil {
				state = fmt.Sprintf("exit %d", end.ExitCode)
			} else if status.State.Waiting != nil {
				state = "waiting"
			}
			o.Containers = append(o.Containers, fmt.Sprintf("%s %s %s restarts %d", container.Name, container.Image, state, status.RestartCount))
		}
		o.Record = strings.TrimSuffix(pod.Annotations[v1alpha1.AnnotationMainContainers], string(pod.UID))
	}
	for _, policy := range v.policies {
		o.addPolicy(policy.Generation, policy.Status)
	}
	for _, policy := range v.clusterPolicies {
		o.addPolicy(policy.Generation, policy.Status)
	}
	return o
}

func (o *outcome) addPolicy(generation int64, s v1alpha1.PolicyStatus) {
	o.Policy = append(o.Policy, fmt.Sprintf("generation %d of %d matched %d waiting %d terminating %d stuck %d dry run %d", s.ObservedGeneration,
		generation, s.MatchedPods, s.WaitingPods, s.TerminatingPods, s.StuckPods, s.DryRunPods))
	for _, condition := range s.Conditions {
		o.Policy = append(o.Policy, fmt.Sprintf("%s=%s %s", condition.Type, condition.Status, condition.Reason))
	}
	o.Totals = append(o.Totals, fmt.Sprintf("terminated %d failed %d", s.TerminatedPods, s.FailedAttempts))
	for _, recent := range s.RecentTerminations {
		o.Totals = append(o.Totals, fmt.Sprintf("%s %s %s", recent.Pod, recent.Mode, recent.Outcome))
	}
}

// execute runs the scenario with the disturbance in an empty namespace, and empties it again.
func (s scenario) execute(f *fixture, d disturbance) (*run, outcome) {
	f.Helper()
	pod := s.pod()
	pod.ObjectMeta = metav1.ObjectMeta{Namespace: f.namespace, Name: podName, Labels: pod.Labels}
	pod.Spec.NodeName = f.node
	status := pod.Status
	f.create(pod)
	pod.Status = status
	f.writeStatus(pod)
	for _, policy := range s.policies(f.namespace) {
		f.create(policy)
	}

	r := &run{T: f.T, ctx: f.Context(), server: f.Client, scenario: s, disturbance: d}
	r.history = &history{server: f.Client, namespace: f.namespace}
	r.node = node{
		server: f.Client, mains: s.mains, exitCode: s.exitCode, stops: map[string]int{}, keepsPhase: s.undecided,
		now: func() time.Time { return time.Now().Add(r.offset).Truncate(time.Second) },
	}
	r.wire = &wire{choose: d.write, arrived: r.record}
	r.record("")
	r.start()
	r.toTheEnd()

	// After convergence a restarted operator writes nothing either, except for dry-run reports.
	writes := r.wire.number
	if s.spec.Enforcement != v1alpha1.EnforcementDryRun {
		r.start()
	}
	for range 2 {
		r.reconcile()
	}
	if r.wire.number > writes {
		r.problem("written after convergence: %q", r.wire.sites[writes:])
	}
	r.checkHistory()
	result := r.outcome()
	r.clear()
	return r, result
}

// clear deletes the run's objects one by one, which is faster than by collections.
func (r *run) clear() {
	v := r.history.now()
	objects := r.scenario.policies(r.history.namespace)
	objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.history.namespace, Name: podName}})
	for i := range v.requests {
		objects = append(objects, &v.requests[i])
	}
	for _, object := range objects {
		if err := r.server.Delete(r.ctx, object, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			r.Fatalf("empty the namespace: %v", err)
		}
	}
}
