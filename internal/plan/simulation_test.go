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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	seeds = 80
	// downSeeds is the number of runs of each scenario in which the operator goes down for good.
	downSeeds = 30
	horizon   = 40 * time.Minute
	// bootTime is when the containers start, before the main container ends.
	bootTime = 20 * time.Second
)

// simulation is one scenario: a pod, a node, a policy, and what goes wrong.
type simulation struct {
	policy   corev1.RestartPolicy
	sidecars []simulated
	// mainExits are the exit codes of the main container, one of each run: 0 by default. It restarts after 42.
	mainExits []int32
	// edits are changes of the policies, in the order of time. The containers start boot before the main container ends, at least bootTime.
	edits []edit
	boot  time.Duration

	virtual, daemonless, kruise bool
	// forgetful means that the node's provider ignores a pod's labels and annotations, so each of its status writes restores the old
	// ones. On any virtual node, a status write in flight does so.
	forgetful bool
	// away is when the admission policy is not installed, and unreadable when the operator lacks permission to read the pod's Job.
	away, unreadable span
	// denies is when OpenKruise's webhook does not know the pod, and deniesMarks when the API server denies the operator writes to pods/status.
	denies, deniesMarks span
	// silentFor is how long after the end of the main container OpenKruise's daemon does not respond.
	silentFor       time.Duration
	quickUnpullable bool
	// lastResort is the operator's flag of mode PodPhase.
	lastResort bool
	// interruptedFor is how long after the end of the main container the kubelet receives nothing from the API server. Its
	// own writes succeed.
	interruptedFor time.Duration
	// nodeBehind is how far the node's clock is behind the operator's.
	nodeBehind time.Duration
	// lateBy is how long after the end of the main container the operator starts.
	lateBy time.Duration
	// disturbed is when the pod is disturbed by the disturbance, before or after the end of the main container. A deletion that is announced
	// at that time is takenBack later, unless that is zero.
	disturbance          disturbance
	disturbed, takenBack time.Duration
	// stale and crashes are each on for half of the seeds. After downAfter writes, the operator is down for good, and endThemselves makes
	// all sidecars end themselves one minute after the main container.
	stale, crashes, forged, endThemselves bool
	downAfter                             int

	// want is the expected phase at the end. It is empty if the pod must be stuck with the reason stuck.
	want  corev1.PodPhase
	stuck v1alpha1.Reason
	// alone means that only the main container may leave an exit code other than 0.
	alone bool
	// smooth means that no attempt may fail.
	smooth bool
	// mayCount bounds the restarts of stopped sidecars that count towards the Job's backoffLimit.
	mayCount int
	// maxWrites bounds the writes of the operator, marks included, except the one after OpenKruise has stopped the sidecars.
	maxWrites int
}

// disturbance is how somebody else ends the pod.
type disturbance string

const (
	eviction disturbance = "eviction" // by the kubelet
	deletion disturbance = "deletion" // by the API server, announced by a condition
	deadline disturbance = "deadline" // activeDeadlineSeconds
)

type simulated struct {
	manner  manner
	sidecar resolve.Sidecar
}

// edit changes the sidecars that policies declare.
type edit struct {
	at       time.Duration // after the end of the main container
	sidecars []resolve.Sidecar
}

// later are the sidecars as they are declared from ten seconds before the main container ends.
func later(sidecars []resolve.Sidecar) []edit { return []edit{{-10 * time.Second, sidecars}} }

// span is a time from one moment to another, after the end of the main container.
type span struct{ from, to time.Duration }

func until(to time.Duration) span { return span{-forever, to} }

// during reports whether it is that time.
func (m *model) during(s span) bool {
	now := m.now.Sub(done)
	return s.from <= now && now < s.to
}

// view is what the policies declare now.
func (m *model) view() resolve.View {
	var declared []resolve.Sidecar
	for _, sidecar := range m.scenario.sidecars {
		declared = append(declared, sidecar.sidecar)
	}
	for _, edit := range m.scenario.edits {
		if m.during(span{edit.at, forever}) {
			declared = edit.sidecars
		}
	}
	return m.viewOf(declared)
}

// viewOf makes the containers that are not declared main containers.
func (m *model) viewOf(declared []resolve.Sidecar) resolve.View {
	view := resolve.View{Sidecars: declared}
	for _, p := range m.kubelet.processes {
		if view.Sidecar(p.name) == nil {
			view.Mains = append(view.Mains, p.name)
		}
	}
	return view
}

// injected makes the sidecar one that is declared only while the pod's Job can be read, as all are here that a policy declares.
func injected(t *resolve.Sidecar) { t.DeclaredBy = resolve.SourcePolicy }

func (s simulation) mainCodes() []int32 {
	if len(s.mainExits) == 0 {
		return []int32{0}
	}
	return s.mainExits
}

func one(m manner, changes ...func(*resolve.Sidecar)) []simulated {
	return []simulated{{manner: m, sidecar: sidecar("proxy", changes...)}}
}

const (
	succeeded = corev1.PodSucceeded
	failed    = corev1.PodFailed
	forever   = 24 * time.Hour
)

var always = until(forever)

// simulations returns the scenarios by name. Each runs with many seeds.
func simulations() map[string]simulation {
	three := func(manners [3]manner, changes ...func(*resolve.Sidecar)) []simulated {
		var all []simulated
		for i, name := range []string{"a", "b", "c"} {
			all = append(all, simulated{manner: manners[i], sidecar: sidecar(name, changes...)})
		}
		return all
	}
	drains := func(changes ...func(*resolve.Sidecar)) []simulated {
		return []simulated{
			{manner: polite, sidecar: sidecar("a", changes...)}, {manner: rude, sidecar: sidecar("b", append(changes, drain(5*time.Second))...)},
			{manner: deaf, sidecar: sidecar("c", append(changes, drain(2*minute))...)},
		}
	}
	inOrder := func(a, b, c manner, changes ...func(*resolve.Sidecar)) []simulated {
		all := three([3]manner{a, b, c}, changes...)
		all[1].sidecar.Order, all[2].sidecar.Order = 50, 100
		return all
	}
	inNoOrder := func(all []simulated) []simulated {
		for i := range all {
			all[i].sidecar.Order = 0
		}
		return all
	}
	firstDrains := func(all []simulated) []simulated {
		all[0].sidecar.Drain = minute
		return all
	}
	declared := func(all []simulated) (sidecars []resolve.Sidecar) {
		for _, s := range all {
			sidecars = append(sidecars, s.sidecar)
		}
		return sidecars
	}
	withWorker := func(m manner) []simulated {
		return append(one(m), simulated{manner: slow, sidecar: sidecar("worker")})
	}
	workerToo, everything := append(oneProxy(), sidecar("worker")), append(sidecarsOf(sidecar("main")), oneProxy()...)
	undeclared := append(later(nil), edit{30 * time.Second, oneProxy()})
	all := map[string]simulation{
		// Whose exit code counts.
		"Respect: exit code 7 fails the pod":                         {policy: never, sidecars: one(rude, respect), kruise: true, want: failed, maxWrites: 1},
		"Respect, restarting sidecar, no image: stuck after one CRR": {policy: onFailure, sidecars: one(rude, respect, noImage), kruise: true, stuck: v1alpha1.ReasonStuck, mayCount: 1, maxWrites: 1},
		"Respect, declared Image, restarting sidecar: exits 0":       {policy: onFailure, sidecars: one(rude, respect, mode(image)), kruise: true, want: succeeded, mayCount: 1, maxWrites: 1, smooth: true},
		"exit codes now count":                                       {policy: never, sidecars: one(rude), edits: later(oneProxy(respect)), kruise: true, want: failed, maxWrites: 3, smooth: true},
		"exit codes no longer count":                                 {policy: never, sidecars: one(rude, respect), edits: later(oneProxy()), kruise: true, want: succeeded, maxWrites: 2, smooth: true},
		"a drain is declared later":                                  {policy: never, sidecars: one(rude), edits: later(oneProxy(drain(minute))), want: succeeded, maxWrites: 3, smooth: true},
		"found late":                                                 {policy: never, sidecars: one(rude), lateBy: minute, want: succeeded, maxWrites: 2, smooth: true},
		"found late, Kruise":                                         {policy: onFailure, sidecars: one(rude), lateBy: minute, kruise: true, want: succeeded, maxWrites: 2, smooth: true},

		// Policies that change.
		"nothing is declared for a while":             {policy: never, sidecars: one(rude), edits: undeclared, want: succeeded, maxWrites: 4, smooth: true},
		"nothing is declared for a while, Kruise":     {policy: onFailure, sidecars: one(rude), kruise: true, edits: undeclared, want: succeeded, maxWrites: 5},
		"everything is declared for a while":          {policy: never, sidecars: one(rude), edits: append(later(everything), edit{30 * time.Second, oneProxy()}), want: succeeded, maxWrites: 4, smooth: true},
		"everything is declared":                      {policy: never, sidecars: one(rude), kruise: true, edits: later(everything), stuck: v1alpha1.ReasonNoMainContainer, maxWrites: 2},
		"a sidecar becomes a main container and back": {policy: never, sidecars: withWorker(deaf), kruise: true, edits: append(later(oneProxy()), edit{10 * time.Second, workerToo}), want: succeeded, maxWrites: 4, smooth: true},
		"a main container becomes a sidecar":          {policy: onFailure, sidecars: withWorker(rude), edits: []edit{{-forever, oneProxy()}, {-10 * time.Second, workerToo}}, want: succeeded, maxWrites: 3, smooth: true},
		"a main container that runs on drains as a sidecar": {
			policy: never, sidecars: withWorker(rude), want: succeeded, maxWrites: 3, smooth: true,
			edits: []edit{{-forever, oneProxy()}, {5 * time.Second, append(oneProxy(), sidecar("worker", drain(minute)))}},
		},
		"a swapped sidecar becomes a main container": {
			policy: onFailure, kruise: true, edits: []edit{{10 * time.Second, oneProxy()}}, want: succeeded, mayCount: 1, maxWrites: 4, smooth: true,
			sidecars: []simulated{{manner: rude, sidecar: sidecar("a", mode(image))}, {manner: deaf, sidecar: sidecar("proxy")}},
		},
		"a drain is cut short": {policy: never, sidecars: one(rude, drain(10*minute)), edits: []edit{{30 * time.Second, oneProxy()}}, want: succeeded, maxWrites: 2, smooth: true},
		"changes too often, exit codes no longer count": {
			policy: never, sidecars: one(rude, noImage), want: succeeded, maxWrites: 5, smooth: true,
			edits: []edit{{-18 * time.Second, oneProxy(noImage, drain(1))}, {-17 * time.Second, oneProxy(noImage, respect)}, {-16 * time.Second, oneProxy(noImage)}},
		},
		"changes too often, a sidecar becomes a main": {
			policy: never, sidecars: withWorker(deaf), boot: 3 * minute, want: succeeded, maxWrites: 4, smooth: true,
			edits: []edit{{-162 * time.Second, oneProxy()}, {-161 * time.Second, workerToo}, {-160 * time.Second, oneProxy()}},
		},

		// The Job cannot be read, so that injected containers count as main containers.
		"the Job is unreadable for a while":           {policy: never, sidecars: one(flaky, injected), unreadable: span{-10 * time.Second, 20 * time.Second}, want: succeeded, maxWrites: 1, smooth: true},
		"the Job is unreadable for a while, Kruise":   {policy: onFailure, sidecars: one(rude, injected), kruise: true, unreadable: span{-10 * time.Second, 20 * time.Second}, want: succeeded, maxWrites: 2, smooth: true},
		"the Job is unreadable at first":              {policy: never, sidecars: one(rude, injected), unreadable: until(20 * time.Second), want: succeeded, maxWrites: 2, smooth: true},
		"the Job is unreadable, exit codes now count": {policy: never, sidecars: one(rude), kruise: true, unreadable: always, edits: later(oneProxy(respect)), want: failed, maxWrites: 3, smooth: true},
		"the Job of one of two is unreadable, exit codes now count": {
			policy: never, kruise: true, unreadable: span{-12 * time.Second, 20 * time.Second}, want: succeeded, maxWrites: 4, smooth: true,
			sidecars: []simulated{{manner: polite, sidecar: sidecar("a")}, {manner: flaky, sidecar: sidecar("b", injected)}},
			edits:    later([]resolve.Sidecar{sidecar("a", respect), sidecar("b", injected)}),
		},
		"the Job of one of two is unreadable": {
			policy: never, unreadable: until(20 * time.Second), want: succeeded, maxWrites: 3, smooth: true,
			sidecars: []simulated{{manner: rude, sidecar: sidecar("a")}, {manner: deaf, sidecar: sidecar("b", injected, drain(minute))}},
		},

		// Restart rules, which only the operator evaluates.
		"the main restarts by a rule":         {policy: never, mainExits: []int32{42, 0}, sidecars: one(rude), want: succeeded, maxWrites: 2, smooth: true},
		"the main restarts by a rule, Kruise": {policy: never, mainExits: []int32{42, 0}, sidecars: one(rude), kruise: true, want: succeeded, maxWrites: 3, smooth: true},
		"the main restarts by a rule, drain":  {policy: onFailure, mainExits: []int32{42, 0}, sidecars: one(deaf, drain(minute)), want: succeeded, maxWrites: 3, smooth: true},
		"the main restarts and fails":         {policy: never, mainExits: []int32{42, 3}, sidecars: one(rude), kruise: true, want: failed, alone: true, maxWrites: 2, smooth: true},
		"the main restarts, image":            {policy: never, mainExits: []int32{42, 0}, sidecars: one(deaf, mode(image)), want: succeeded, maxWrites: 3, smooth: true},

		// OpenKruise fails.
		"silent daemon, Respect: stuck":                        {policy: never, sidecars: one(polite, respect), kruise: true, silentFor: forever, stuck: v1alpha1.ReasonStuck, maxWrites: 10},
		"silent daemon that recovers: the CRR ends it late":    {policy: never, sidecars: one(polite, respect), kruise: true, silentFor: 10 * minute, want: succeeded, maxWrites: 8},
		"silent daemon: the phase ends the sidecar":            {policy: never, sidecars: one(deaf), kruise: true, silentFor: forever, want: succeeded, maxWrites: 3},
		"silent daemon, the phase is a last resort: the image": {policy: never, sidecars: one(deaf), kruise: true, silentFor: forever, lastResort: true, want: succeeded, maxWrites: 3},
		"OpenKruise's webhook denies CRRs: the phase":          {policy: never, sidecars: one(rude), kruise: true, denies: always, want: succeeded, maxWrites: 2, smooth: true},
		"OpenKruise denies CRRs, the node's clock is ahead":    {policy: never, sidecars: one(rude), kruise: true, denies: always, nodeBehind: -3 * time.Hour, want: succeeded, maxWrites: 2, smooth: true},
		"OpenKruise's cache is stale":                          {policy: onFailure, sidecars: one(polite), kruise: true, denies: until(3 * time.Second), lastResort: true, quickUnpullable: true, want: succeeded, maxWrites: 2, smooth: true},

		// The kubelet sees the phase late.
		"kubelet sees the phase 28 s late":                 {policy: never, sidecars: one(rude), interruptedFor: 28 * time.Second, want: succeeded, maxWrites: 1, smooth: true},
		"kubelet sees the phase after its deadline":        {policy: never, sidecars: one(rude), interruptedFor: 90 * time.Second, want: succeeded, maxWrites: 1},
		"kubelet sees the phase late, declared, Kruise":    {policy: never, sidecars: one(rude, mode(podPhase)), kruise: true, interruptedFor: 3 * minute, want: succeeded, maxWrites: 2},
		"kubelet sees the phase late, OnFailure, Kruise":   {policy: onFailure, sidecars: one(rude, mode(podPhase)), kruise: true, interruptedFor: 3 * minute, want: succeeded, maxWrites: 2},
		"kubelet sees the decision of a natural end late":  {policy: never, sidecars: one(rude), kruise: true, interruptedFor: 3 * minute, want: succeeded, maxWrites: 2, smooth: true},
		"kubelet restarts a sidecar until it sees the end": {policy: onFailure, sidecars: one(rude), kruise: true, interruptedFor: minute, want: succeeded, maxWrites: 2, smooth: true},

		// The admission policy is not installed, or goes. The operator decides, if it is quick.
		"not decided: the phase":                            {policy: never, sidecars: one(rude), away: always, want: succeeded, maxWrites: 2, smooth: true},
		"not decided, OnFailure: the phase":                 {policy: onFailure, sidecars: one(deaf), away: always, want: succeeded, maxWrites: 2, smooth: true},
		"not decided, Kruise":                               {policy: never, sidecars: one(rude), kruise: true, away: always, want: succeeded, maxWrites: 4, smooth: true},
		"not decided, Kruise, OnFailure":                    {policy: onFailure, sidecars: one(rude), kruise: true, away: always, want: succeeded, maxWrites: 4},
		"not decided, Kruise, Respect":                      {policy: never, sidecars: one(rude, respect), kruise: true, away: always, want: failed, maxWrites: 1},
		"not decided, sidecar fails first":                  {policy: never, sidecars: one(crashing), kruise: true, away: always, want: succeeded, maxWrites: 2, smooth: true},
		"not decided, sidecar fails first, OnFailure":       {policy: onFailure, sidecars: one(crashing), away: always, want: succeeded, maxWrites: 3, smooth: true},
		"not decided, drain":                                {policy: never, sidecars: drains(), away: always, want: succeeded, maxWrites: 4, smooth: true},
		"not decided, drain, Kruise":                        {policy: onFailure, sidecars: drains(), kruise: true, away: always, want: succeeded, maxWrites: 6},
		"not decided, restart rules":                        {policy: never, mainExits: []int32{42, 0}, sidecars: one(rude), kruise: true, away: always, want: succeeded, maxWrites: 4, smooth: true},
		"not decided, declared PodPhase":                    {policy: never, sidecars: one(rude, mode(podPhase), noFallback), away: always, want: succeeded, maxWrites: 2, smooth: true},
		"not decided, failed main, only the phase":          {policy: never, mainExits: []int32{3}, sidecars: one(rude, noImage), away: always, want: failed, maxWrites: 2, smooth: true},
		"not decided, deleted in a drain":                   {policy: never, sidecars: one(rude, drain(minute)), away: always, disturbance: deletion, disturbed: 20 * time.Second, want: succeeded, maxWrites: 3},
		"not decided, found late":                           {policy: never, sidecars: one(rude), lateBy: minute, away: always, want: succeeded, maxWrites: 2, smooth: true},
		"not decided, virtual node":                         {policy: never, sidecars: one(polite), virtual: true, away: always, want: succeeded, alone: true, maxWrites: 5, smooth: true},
		"not decided, virtual node that forgets the mark":   {policy: never, sidecars: one(rude), virtual: true, forgetful: true, away: always, want: succeeded, alone: true, maxWrites: 12, smooth: true},
		"not decided, nothing is declared after the record": {policy: never, sidecars: one(rude, drain(2*minute)), edits: []edit{{20 * time.Second, nil}}, endThemselves: true, away: always, want: succeeded, maxWrites: 3},
		"the policy goes when the main has ended":           {policy: never, sidecars: drains(), kruise: true, away: span{3 * time.Second, forever}, want: succeeded, maxWrites: 6},
		"the policy goes when the pod has finished":         {policy: never, sidecars: one(rude), away: span{15 * time.Second, forever}, want: succeeded, maxWrites: 1, smooth: true},
		"the policy is away when the main ends":             {policy: never, sidecars: one(rude), away: span{-10 * time.Second, 10 * time.Second}, want: succeeded, maxWrites: 2, smooth: true},
		"the policy is away when the main ends, Kruise":     {policy: onFailure, sidecars: one(rude), kruise: true, away: span{-10 * time.Second, 10 * time.Second}, want: succeeded, mayCount: 1, maxWrites: 4},
		"the policy comes when the pod has finished":        {policy: never, sidecars: one(rude), away: until(10 * minute), want: succeeded, maxWrites: 2, smooth: true},
		"marks are denied at first":                         {policy: never, sidecars: one(crashing), deniesMarks: until(-10 * time.Second), want: succeeded, maxWrites: 1, smooth: true},
		"marks are denied until the main has ended":         {policy: onFailure, sidecars: one(rude, noImage), deniesMarks: until(5 * minute), want: succeeded, maxWrites: 3, smooth: true},
		"the policy comes before the end of the main":       {policy: never, sidecars: one(rude), away: until(-5 * time.Second), want: succeeded, maxWrites: 1, smooth: true},
		"marks are denied: the image":                       {policy: never, sidecars: one(rude), kruise: true, deniesMarks: always, want: succeeded, alone: true, maxWrites: 1, smooth: true},

		// Nodes.
		"virtual node: the image":                         {policy: never, sidecars: one(deaf), virtual: true, want: succeeded, maxWrites: 2, smooth: true},
		"virtual node, sidecar fails first":               {policy: never, sidecars: one(crashing), virtual: true, want: succeeded, maxWrites: 1, smooth: true},
		"virtual node, sidecar restarts after the main":   {policy: onFailure, sidecars: one(flaky), virtual: true, want: succeeded, maxWrites: 2, smooth: true},
		"virtual node, unpullable quick-exit image":       {policy: onFailure, sidecars: one(polite), virtual: true, quickUnpullable: true, want: succeeded, maxWrites: 2},
		"no daemon on the node: the phase":                {policy: never, sidecars: one(rude), daemonless: true, kruise: true, want: succeeded, maxWrites: 1, smooth: true},
		"no daemon on the node, mode Image":               {policy: never, sidecars: one(rude, mode(image)), daemonless: true, kruise: true, want: succeeded, maxWrites: 2, smooth: true},
		"forgetful virtual node: polite sidecar":          {policy: never, sidecars: one(polite), virtual: true, forgetful: true, want: succeeded, maxWrites: 2, smooth: true},
		"forgetful virtual node: rude sidecar, OnFailure": {policy: onFailure, sidecars: one(rude), virtual: true, forgetful: true, want: succeeded, maxWrites: 2, smooth: true},
		"forgetful virtual node: sidecar never started":   {policy: onFailure, sidecars: one(unpullably), virtual: true, forgetful: true, want: succeeded, maxWrites: 2, smooth: true},
		"forgetful virtual node: different drains":        {policy: never, sidecars: drains(), virtual: true, forgetful: true, want: succeeded, maxWrites: 4, smooth: true},
		"forgetful virtual node: Respect":                 {policy: never, sidecars: one(rude, respect, mode(image)), virtual: true, forgetful: true, want: succeeded, maxWrites: 1, smooth: true},

		// Mode Image.
		"unpullable quick-exit image: falls back to the phase": {policy: onFailure, sidecars: one(polite, mode(image)), quickUnpullable: true, want: succeeded, maxWrites: 3},
		"unpullable quick-exit image, Respect: stuck":          {policy: onFailure, sidecars: one(polite, mode(image), respect, noFallback), quickUnpullable: true, stuck: v1alpha1.ReasonStuck, maxWrites: 1},
		"node clock behind, mode Image":                        {policy: never, sidecars: one(rude, mode(image)), nodeBehind: 50 * minute, want: succeeded, maxWrites: 2, smooth: true},
		"node clock ahead, mode Image":                         {policy: onFailure, sidecars: one(rude, mode(image)), nodeBehind: -50 * minute, want: succeeded, maxWrites: 2, smooth: true},

		// Several sidecars.
		"three deaf sidecars: one CRR stops them in turn":   {policy: never, kruise: true, sidecars: three([3]manner{deaf, deaf, deaf}, respect), want: failed, maxWrites: 1, smooth: true},
		"three deaf sidecars: one swap stops them in turn":  {policy: never, virtual: true, sidecars: three([3]manner{deaf, deaf, deaf}), want: succeeded, maxWrites: 2, smooth: true},
		"three sidecars, no Kruise: the phase":              {policy: onFailure, sidecars: three([3]manner{polite, rude, deaf}), want: succeeded, maxWrites: 1, smooth: true},
		"three CRRs in turn: none fails":                    {policy: never, kruise: true, sidecars: drains(noImage), want: succeeded, maxWrites: 4, smooth: true},
		"three CRRs in turn, Respect":                       {policy: never, kruise: true, sidecars: drains(respect), want: failed, maxWrites: 3, smooth: true},
		"different drains: the phase waits for the longest": {policy: onFailure, sidecars: drains(), want: succeeded, maxWrites: 2, smooth: true},
		"a respected sidecar ends before the phase": {
			policy: never, kruise: true, want: succeeded, maxWrites: 3, smooth: true,
			sidecars: []simulated{{manner: deaf, sidecar: sidecar("a", mode(podPhase))}, {manner: polite, sidecar: sidecar("b", respect)}, {manner: unpullably, sidecar: sidecar("c")}},
		},
		"a respected sidecar fails before the phase": {
			policy: never, kruise: true, want: failed, maxWrites: 4, smooth: true,
			sidecars: []simulated{{manner: polite, sidecar: sidecar("a", mode(podPhase))}, {manner: rude, sidecar: sidecar("b", respect)}},
		},
		"each sidecar by its own mode": {
			policy: never, kruise: true, want: succeeded, maxWrites: 4, smooth: true,
			sidecars: []simulated{{manner: rude, sidecar: sidecar("a", mode(image))}, {manner: rude, sidecar: sidecar("b")}, {manner: rude, sidecar: sidecar("c", mode(podPhase))}},
		},
		"one ends, one crash-loops, one drains": {
			policy: onFailure, kruise: true, want: succeeded, maxWrites: 5,
			sidecars: []simulated{{manner: rude, sidecar: sidecar("a")}, {manner: crashing, sidecar: sidecar("b")}, {manner: rude, sidecar: sidecar("c", drain(minute))}},
		},

		// terminationOrder: b ends after a, and c after both.
		"order":                        {policy: never, kruise: true, sidecars: inOrder(rude, polite, rude), want: succeeded, maxWrites: 4, smooth: true},
		"order, OnFailure":             {policy: onFailure, kruise: true, sidecars: inOrder(polite, deaf, polite), want: succeeded, mayCount: 3, maxWrites: 8},
		"order, all restart":           {policy: onFailure, kruise: true, sidecars: inOrder(rude, rude, rude), want: succeeded, mayCount: 3, maxWrites: 8},
		"order, Respect":               {policy: never, kruise: true, sidecars: inOrder(polite, rude, polite, respect), want: failed, maxWrites: 3, smooth: true},
		"order, virtual node":          {policy: never, virtual: true, sidecars: inOrder(rude, deaf, polite), want: succeeded, maxWrites: 6, smooth: true},
		"order, virtual, OnFailure":    {policy: onFailure, virtual: true, sidecars: inOrder(rude, deaf, flaky), want: succeeded, mayCount: 3, maxWrites: 6, smooth: true},
		"order, no Kruise":             {policy: never, sidecars: inOrder(rude, polite, rude), want: succeeded, maxWrites: 4, smooth: true},
		"order, no Kruise, OnFailure":  {policy: onFailure, sidecars: inOrder(deaf, rude, rude), want: succeeded, mayCount: 3, maxWrites: 4, smooth: true},
		"order, only the phase":        {policy: never, sidecars: inOrder(rude, polite, deaf, noImage), want: succeeded, maxWrites: 1, smooth: true},
		"order, only the phase, drain": {policy: never, sidecars: inOrder(rude, polite, deaf, noImage, drain(minute)), want: succeeded, maxWrites: 2, smooth: true},
		"order, drain":                 {policy: never, kruise: true, sidecars: inOrder(rude, polite, rude, drain(minute)), want: succeeded, maxWrites: 4, smooth: true},
		"order, first one drains":      {policy: never, sidecars: firstDrains(inOrder(rude, polite, rude)), want: succeeded, maxWrites: 4, smooth: true},
		"order, crash-looping":         {policy: onFailure, kruise: true, sidecars: inOrder(crashing, polite, rude), want: succeeded, maxWrites: 8},
		"order, never started":         {policy: onFailure, kruise: true, sidecars: inOrder(unpullably, polite, rude), want: succeeded, maxWrites: 8},
		"order, silent daemon":         {policy: never, kruise: true, silentFor: forever, sidecars: inOrder(rude, polite, rude), want: succeeded, maxWrites: 8},
		"order, CRRs are denied":       {policy: never, kruise: true, denies: always, sidecars: inOrder(rude, polite, rude), want: succeeded, maxWrites: 4, smooth: true},
		"order, failed main":           {policy: never, mainExits: []int32{3}, kruise: true, sidecars: inOrder(deaf, rude, polite), want: failed, alone: true, maxWrites: 4, smooth: true},
		"order, policy away":           {policy: never, kruise: true, away: always, sidecars: inOrder(rude, polite, rude), want: succeeded, maxWrites: 6, smooth: true},
		"order, found late":            {policy: never, kruise: true, lateBy: minute, sidecars: inOrder(rude, polite, rude), want: succeeded, maxWrites: 4, smooth: true},
		"order, declared later":        {policy: never, kruise: true, sidecars: inNoOrder(inOrder(rude, polite, rude)), edits: later(declared(inOrder(rude, polite, rude))), want: succeeded, maxWrites: 5, smooth: true},
		"order, no longer declared":    {policy: never, kruise: true, sidecars: inOrder(deaf, polite, rude), edits: []edit{{10 * time.Second, declared(inNoOrder(inOrder(deaf, polite, rude)))}}, want: succeeded, maxWrites: 4, smooth: true},
		"order, each by its own mode": {
			policy: never, kruise: true, want: succeeded, maxWrites: 4, smooth: true,
			sidecars: []simulated{{manner: rude, sidecar: sidecar("a", mode(image))}, {manner: rude, sidecar: sidecar("b", order(50))}, {manner: rude, sidecar: sidecar("c", mode(podPhase), order(100))}},
		},
		"order, PodPhase is declared first": {
			policy: never, kruise: true, want: succeeded, maxWrites: 2, smooth: true,
			sidecars: []simulated{{manner: rude, sidecar: sidecar("a", mode(podPhase))}, {manner: rude, sidecar: sidecar("b", order(50))}, {manner: rude, sidecar: sidecar("c", order(100))}},
		},

		// The main container fails.
		"failed main, Kruise":         {policy: never, mainExits: []int32{3}, sidecars: one(deaf), kruise: true, want: failed, alone: true, maxWrites: 2, smooth: true},
		"failed main, no Kruise":      {policy: never, mainExits: []int32{3}, sidecars: one(rude), want: failed, alone: true, maxWrites: 2, smooth: true},
		"failed main, declared CRR":   {policy: never, mainExits: []int32{3}, sidecars: one(rude, mode(crr)), kruise: true, want: failed, maxWrites: 2, smooth: true},
		"failed main, only the phase": {policy: never, mainExits: []int32{3}, sidecars: one(rude, noImage), want: failed, maxWrites: 2, smooth: true},
		"failed main, sidecars of every behavior": {
			policy: never, mainExits: []int32{3}, kruise: true, want: failed, alone: true, maxWrites: 3,
			sidecars: []simulated{
				{manner: deaf, sidecar: sidecar("a")}, {manner: rude, sidecar: sidecar("b", mode(image))}, {manner: unpullably, sidecar: sidecar("c", drain(5*time.Second))},
			},
		},
		"failed main, unpullable quick-exit image": {policy: never, mainExits: []int32{3}, sidecars: one(rude), kruise: true, quickUnpullable: true, want: failed, maxWrites: 2},
		"failed main, sidecar failed before":       {policy: never, mainExits: []int32{3}, sidecars: one(crashing), kruise: true, want: failed, maxWrites: 1, smooth: true},

		// Drains and clocks.
		"no usable mode: stuck":      {policy: never, sidecars: one(polite, respect), stuck: v1alpha1.ReasonNoUsableMode},
		"a restarted sidecar drains": {policy: onFailure, sidecars: one(flaky, drain(minute)), want: succeeded, maxWrites: 2, smooth: true},
		"a deletion is taken back":   {policy: never, sidecars: one(rude, noImage), disturbance: deletion, disturbed: -3 * time.Second, takenBack: 20 * time.Second, want: succeeded, maxWrites: 2},
		"drain, node clock behind":   {policy: never, sidecars: one(rude, drain(minute)), nodeBehind: 10 * minute, want: succeeded, maxWrites: 2},
		"drain, node clock ahead":    {policy: never, sidecars: one(rude, drain(minute)), nodeBehind: -10 * minute, kruise: true, want: succeeded, maxWrites: 2, smooth: true},
	}
	for _, at := range []time.Duration{-3 * time.Second, 20 * time.Second} {
		for _, kind := range []disturbance{eviction, deletion, deadline} {
			want, when := failed, "before the main ends"
			if at > 0 {
				want, when = succeeded, "after the main has ended"
			}
			name := fmt.Sprintf("%s %s", kind, when)
			all[name] = simulation{policy: never, sidecars: one(rude, drain(minute)), disturbance: kind, disturbed: at, want: want, maxWrites: 1}
			all[name+", Kruise"] = simulation{policy: never, sidecars: one(rude, drain(10*time.Second)), kruise: true, disturbance: kind, disturbed: at, want: want, maxWrites: 2}
			all[name+", CRR"] = simulation{policy: never, sidecars: one(deaf), kruise: true, disturbance: kind, disturbed: at, want: want, maxWrites: 2}
			all[name+", PodPhase"] = simulation{policy: never, sidecars: one(deaf), disturbance: kind, disturbed: at, want: want, maxWrites: 1}
		}
	}
	// Whatever a sidecar does, the main container determines the outcome of its pod.
	for _, policy := range []corev1.RestartPolicy{never, onFailure} {
		for _, m := range []manner{polite, rude, deaf, crashing, unpullably} {
			all[fmt.Sprintf("%s, %s sidecar", policy, m)] = simulation{policy: policy, sidecars: one(m), want: succeeded, maxWrites: 1, smooth: true}
			all[fmt.Sprintf("%s, %s sidecar, Kruise", policy, m)] = simulation{policy: policy, sidecars: one(m), kruise: true, want: succeeded, maxWrites: 2}
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
				m.judge()
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

// mixed returns the scenario with stale caches, crashes and forged marks in half of the seeds each.
func (s simulation) mixed(seed uint64) simulation {
	s.stale, s.crashes, s.forged = seed%2 == 1, seed%4 >= 2, seed%8 >= 4
	return s
}

// simulate runs the scenario.
func (m *model) simulate() {
	m.kubelet.boot()
	m.operator.podChanged(m.pod)
	s := m.scenario
	if s.forged {
		m.crrsChanged()
	}
	for _, edit := range s.edits {
		m.at(edit.at, m.operator.reconcile)
	}
	if s.lateBy > 0 {
		m.operator.down = true
		m.at(s.lateBy, m.operator.start)
	}
	switch s.disturbance {
	case eviction:
		m.at(s.disturbed, func() { m.kubelet.kill("Evicted") })
	case deletion:
		m.at(s.disturbed, func() {
			m.writeStatus(func(pod *corev1.Pod) { condition(corev1.DisruptionTarget)(&plan.Snapshot{Pod: pod}) })
			if s.takenBack == 0 {
				m.write(func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: m.now} })
				return
			}
			m.at(s.takenBack, func() {
				m.disturbed = time.Time{}
				m.writeStatus(func(pod *corev1.Pod) { *pod = *undisturbed(pod) })
			})
		})
	case deadline:
		m.at(s.disturbed, func() { m.disturbed = m.now; m.kubelet.kill("DeadlineExceeded") })
	}
	m.run(horizon)
}

// newModel returns the scenario's cluster before its start.
func newModel(s simulation, seed uint64) *model {
	m := &model{scenario: s, random: rand.New(rand.NewPCG(seed, 1)), now: done.Add(-max(s.boot, bootTime))}
	main := creating("main")
	if len(s.mainExits) > 1 {
		main = main.restarting(corev1.ContainerRestartPolicyNever, rule(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 42))
	}
	containers := []container{main}
	m.kubelet = &kubelet{m: m, images: map[string]string{"main": "main:v1"}, processes: []*process{{name: "main", manner: works, image: "main:v1"}}}
	for _, side := range s.sidecars {
		name := side.sidecar.Container
		containers = append(containers, creating(name))
		m.kubelet.images[name] = name + ":v1"
		m.kubelet.processes = append(m.kubelet.processes, &process{name: name, manner: side.manner, image: name + ":v1"})
	}
	m.kruise, m.operator = &kruise{m: m}, &operator{m: m, seenVersion: -1}
	m.pod = newPod(s.policy, containers...)
	for i := range m.pod.Spec.Containers {
		m.pod.Spec.Containers[i].Image = m.pod.Spec.Containers[i].Name + ":v1"
	}
	if s.forged {
		// Somebody who may patch pods was faster than the operator.
		annotate(m.pod, v1alpha1.AnnotationIgnoredExitCodes, own("main"))
		annotate(m.pod, v1alpha1.AnnotationEnd, own(v1alpha1.EndPodPhase))
		annotate(m.pod, v1alpha1.AnnotationMainContainers, own(v1alpha1.MainsSucceeded))
		for _, number := range []int{plan.MaxNumber, plan.MaxNumber + 1} {
			m.crrs = append(m.crrs, &modelCRR{attempt: finished(crrAttempt(number, "main"), -bootTime, "forged")})
		}
	}
	m.pod.Status.Phase = corev1.PodPending
	m.pod.CreationTimestamp, m.pod.Status.StartTime = metav1.NewTime(m.now), &metav1.Time{Time: m.now}
	if s.disturbance == deadline {
		seconds := int64((s.disturbed + bootTime) / time.Second)
		m.pod.Spec.ActiveDeadlineSeconds = &seconds
	}
	return m
}

// judge records what is wrong with the final state.
func (m *model) judge() {
	s := m.scenario
	if main := m.kubelet.process("main"); main.runs != len(s.mainCodes()) {
		m.fail("the main container ran %d times", main.runs)
	}
	mostWrites := s.maxWrites
	if s.forged {
		// The admission policy removes an end that the mark does not change, and the operator marks again.
		mostWrites++
	}
	if ownValue(m.pod, v1alpha1.AnnotationEnd) == v1alpha1.EndCRR {
		mostWrites++
	}
	if writes := m.operator.writes; writes > mostWrites {
		m.fail("%d writes, more than %d", writes, mostWrites)
	}
	m.operator.seen = m.pod
	last := plan.Next(m.operator.snapshot(), m.now)
	if s.want == "" {
		if last.Stage != plan.StageStuck || last.Reason != s.stuck || last.Message == "" {
			m.fail("the pod is %s (%s), and not stuck: %s", last.Stage, last.Reason, last.Message)
		}
		return
	}
	for _, p := range m.kubelet.processes {
		if p.isAlive() {
			m.fail("%s still runs", p.name)
		}
		if s.alone && p.name != "main" && p.code != 0 {
			m.fail("%s has left exit code %d", p.name, p.code)
		}
	}
	// A slow operator may decide too late, and so does each where a kubelet ends the pod. It then says so.
	slow := s.away != span{} && (s.stale || s.crashes || s.disturbance != "") && last.Reason == v1alpha1.ReasonDecidedTooLate
	if m.pod.Status.Phase != s.want && !slow {
		m.fail("the pod reads %s, not %s", m.pod.Status.Phase, s.want)
	}
	if len(last.Writes) > 0 || last.Stage != plan.StageTerminated && last.Stage != plan.StageIgnored {
		m.fail("the final state is not stable: %+v", briefly(last))
	}
	if m.now.Sub(m.written) < 10*time.Minute {
		m.fail("the status is still written")
	}
}

// TestSimulationOperatorDown stops the operator for good after its first writes. Sidecars then end themselves, some with a failure. The
// outcome is still that of the containers that count, and a pod that was marked in advance ends at once.
func TestSimulationOperatorDown(t *testing.T) {
	for name, scenario := range simulations() {
		changes := scenario.away != span{} || scenario.unreadable != span{} || scenario.deniesMarks != span{} || len(scenario.edits) > 0 || scenario.takenBack > 0
		if changes || scenario.lateBy > 0 || len(scenario.mainExits) > 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(downSeeds) {
				s := scenario
				s.downAfter, s.endThemselves, s.smooth, s.stale, s.mayCount = 1+int(seed%3), true, false, seed%2 == 1, int(horizon)
				m := newModel(s, seed)
				m.simulate()
				m.judgeAlone()
				m.mustBeFine(t, seed)
			}
		})
	}
}

// judgeAlone records what is wrong with the final state of a pod without an operator.
func (m *model) judgeAlone() {
	s := m.scenario
	want := succeeded
	for _, p := range m.kubelet.processes {
		declared := m.view().Sidecar(p.name)
		if counts := declared == nil || declared.ExitCodePolicy == v1alpha1.ExitCodePolicyRespect; counts && p.code != 0 {
			want = failed
		}
	}
	if s.disturbance != "" {
		want = s.want
	}
	runs := slices.ContainsFunc(m.kubelet.processes, func(p *process) bool { return p.state != "dead" })
	inAdvance := endOf(m.pod) != "" && want == succeeded
	switch {
	case isTerminal(m.pod) && m.pod.Status.Phase != want:
		m.fail("the pod reads %s, not %s", m.pod.Status.Phase, want)
	case !isTerminal(m.pod) && (!runs || inAdvance):
		m.fail("the pod reads %s, not %s", m.pod.Status.Phase, want)
	case isTerminal(m.pod) && m.kubelet.anyAlive() && !s.virtual:
		m.fail("a container still runs")
	}
}

// TestTranscripts records what happens in a few scenarios for people to read.
func TestTranscripts(t *testing.T) {
	all := simulations()
	for file, name := range map[string]string{
		"pod-phase":     "OnFailure, deaf sidecar",
		"kruise":        "Never, rude sidecar, Kruise",
		"failed-main":   "failed main, Kruise",
		"eviction":      "eviction after the main has ended",
		"not-decided":   "not decided, Kruise",
		"silent-daemon": "silent daemon that recovers: the CRR ends it late",
		"lost-record":   "forgetful virtual node: different drains",
	} {
		t.Run(file, func(t *testing.T) {
			s, ok := all[name]
			if !ok {
				t.Fatalf("there is no scenario %q", name)
			}
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
