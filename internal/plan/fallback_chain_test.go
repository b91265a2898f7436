// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

func unknownFallback(t *resolve.Sidecar)  { t.Fallback = "Sometimes" }
func unknownExitCodes(t *resolve.Sidecar) { t.ExitCodePolicy = "RespectUnlessKilled" }

// TestFallbackOrder covers the order of the modes, by what follows when earlier ones have failed or cannot be used.
func TestFallbackOrder(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }
	failed := func() *corev1.Pod { return newPod(never, exited("main", 7), running("proxy")) }
	mustWait := []func(*plan.Snapshot){unmarked, markAfter(minute)}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		sidecar func(*resolve.Sidecar)
		changes []func(*plan.Snapshot)
		want    string
	}{
		"Auto":                           {want: "CRR PodPhase Image"},
		"declared CRR":                   {sidecar: mode(crr), want: "CRR PodPhase Image"},
		"declared PodPhase":              {sidecar: mode(podPhase), want: "PodPhase CRR Image"},
		"declared Image":                 {sidecar: mode(image), want: "Image CRR PodPhase"},
		"Respect":                        {sidecar: respect, want: "CRR"},
		"predictions":                    {changes: []func(*plan.Snapshot){assumeMarked, unmarked}, want: "CRR PodPhase Image"},
		"OnFailure":                      {pod: finishedMain(onFailure), want: "CRR PodPhase Image"},
		"no Kruise":                      {changes: []func(*plan.Snapshot){withoutKruise}, want: "PodPhase Image"},
		"last resort":                    {changes: []func(*plan.Snapshot){lastResort}, want: "CRR Image PodPhase"},
		"last resort, declared PodPhase": {changes: []func(*plan.Snapshot){lastResort}, sidecar: mode(podPhase), want: "PodPhase CRR Image"},
		"resource claims":                {changes: []func(*plan.Snapshot){withClaim}, want: "CRR Image PodPhase"},
		"failed main":                    {pod: failed(), want: "Image CRR PodPhase"},
		"failed main, Respect":           {pod: failed(), sidecar: respect, want: "CRR"},
		"failed main, declared CRR":      {pod: failed(), sidecar: mode(crr), want: "CRR Image PodPhase"},
		"failed main, declared PodPhase": {pod: failed(), sidecar: mode(podPhase), want: "PodPhase Image CRR"},
		"failed main, last resort":       {pod: failed(), changes: []func(*plan.Snapshot){lastResort}, want: "Image CRR PodPhase"},
		"mark must wait":                 {changes: mustWait, want: "Image CRR"},
		"mark must wait, Respect":        {changes: mustWait, sidecar: respect, want: "CRR"},
		"mark must wait, declared":       {changes: mustWait, sidecar: mode(crr), want: "CRR Image"},
		"mark must wait, failed main":    {pod: failed(), changes: mustWait, want: "Image CRR"},
		"marks are denied":               {changes: []func(*plan.Snapshot){unmarked, denying(podPhase)}, want: "Image CRR"},
	} {
		t.Run(name, func(t *testing.T) {
			declared := sidecar("proxy")
			if tc.sidecar != nil {
				tc.sidecar(&declared)
			}
			if tc.pod == nil {
				tc.pod = pod()
			}
			s := observed(tc.pod, sidecarsOf(declared), tc.changes...)
			s.MarkedAt = done
			var options, used []string
			for _, option := range plan.ModeOptions(s, declared) {
				if option.Usable() {
					options = append(options, string(option.Mode))
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(options, " ")); diff != "" {
				t.Errorf("ModeOptions() (-want +got):\n%s", diff)
			}
			// Next uses them in this order, if each is denied in turn.
			denied := map[v1alpha1.Mode]string{}
			maps.Copy(denied, s.Denied)
			for actions := plan.Next(s, done).Writes; len(actions) == 1 && denied[actions[0].Mode] == ""; actions = plan.Next(s, done).Writes {
				used = append(used, string(actions[0].Mode))
				denied[actions[0].Mode] = "denied"
				s.Denied = denied
			}
			if diff := cmp.Diff(tc.want, strings.Join(used, " ")); diff != "" {
				t.Errorf("Next() uses (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFallbackChain covers the first attempt: its mode and its action.
func TestFallbackChain(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }
	server := func() *corev1.Pod { return finishedMain(never, running("proxy").runs("/app/server")) }
	runScenarios(t, map[string]scenario{
		"an operator for single namespaces: the phase":           {observed(pod(), oneProxy(), namespacesOnly), 0, terminating(phaseOfProxy)},
		"virtual node: the image":                                {observed(pod(), oneProxy(), onVirtualNode), 0, terminating(swapOfProxy)},
		"virtual node, no image: no usable mode":                 {observed(pod(), oneProxy(noImage), onVirtualNode), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"unknown kind of node: the image":                        {observed(pod(), oneProxy(), onUnreadNode), 0, terminating(swapOfProxy)},
		"no daemon on the node: the phase":                       {observed(pod(), oneProxy(), onDaemonlessNode), 0, terminating(phaseOfProxy)},
		"PodPhase, virtual node: falls back":                     {observed(pod(), oneProxy(mode(podPhase)), onVirtualNode), 0, fallingBack(swapOfProxy)},
		"CRR, no daemon on the node: falls back":                 {observed(pod(), oneProxy(mode(crr)), onDaemonlessNode), 0, fallingBack(phaseOfProxy)},
		"no Kruise, Respect, declared Image: the image":          {observed(pod(), oneProxy(respect, mode(image)), withoutKruise), 0, terminating(swapOfProxy)},
		"Image covers the command: the image":                    {observed(server(), oneProxy(mode(image), having("default", "/app/server"))), 0, terminating(swapOfProxy)},
		"Image covers every command: the image":                  {observed(server(), oneProxy(mode(image), having("*"))), 0, terminating(swapOfProxy)},
		"Image does not cover the command: falls back":           {observed(server(), oneProxy(mode(image)), withoutKruise), 0, fallingBack(phaseOfProxy)},
		"the operator's default image need not be on the list":   {observed(pod(), oneProxy(mode(image), from(resolve.SourceOperator)), withoutImages), 0, terminating(swapOfProxy)},
		"a swap in progress continues when its image is removed": {observed(pod(), oneProxy(mode(image), noFallback, from(resolve.SourcePolicy)), withoutImages, attempted(swap("proxy"))), 0, inProgress(minute)},
		"a swap in progress continues when its paths change":     {observed(server(), oneProxy(mode(image), noFallback), attempted(swap("proxy"))), 0, inProgress(minute)},
		"a swap of another sidecar does not count": {
			observed(finishedMain(never, running("logs"), running("proxy").runs("/app/server")), sidecarsOf(sidecar("proxy", mode(image), noFallback), sidecar("logs")), attempted(swap("logs"))),
			0, requeued(stuck(v1alpha1.ReasonCommandNotCovered), minute),
		},
		"sidecar never started: the phase, even with Kruise":  {observed(finishedMain(onFailure, unpullable("proxy")), oneProxy(), assumeMarked), 0, terminating(phaseOfProxy)},
		"Auto has its fallback chain even without fallback":   {observed(pod(), oneProxy(noFallback), withoutKruise), 0, terminating(phaseOfProxy)},
		"a crash-looping sidecar is ended like a running one": {observed(finishedMain(onFailure, crashLooping("proxy")), oneProxy(), assumeMarked), 0, terminating(crrOfProxy)},
		"an unknown mode is followed by the next":             {observed(pod(), oneProxy(mode("Freeze"))), 0, fallingBack(crrOfProxy)},
		"an unknown fallback leaves a usable mode":            {observed(pod(), oneProxy(mode(podPhase), unknownFallback)), 0, terminating(phaseOfProxy)},
		"an unknown fallback leaves Auto":                     {observed(pod(), oneProxy(unknownFallback)), 0, terminating(crrOfProxy)},
		"an unknown fallback does not mean Enabled":           {observed(pod(), oneProxy(mode(image), noImage, unknownFallback)), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"unknown exit codes of a failed sidecar count":        {observed(finishedMain(never, exited("logs", 3), running("proxy")), sidecarsOf(sidecar("logs", unknownExitCodes), sidecar("proxy"))), 0, terminating(swapOfProxy)},
		"a CRR's deadline has a grace period for each":        {observed(finishedMain(never, running("a"), running("b"), running("c")), sidecarsOf(sidecar("a"), sidecar("b"), sidecar("c"))), 0, terminating("CRR#1 [a b c] within 2m0s")},
		"a swap's deadline has a grace period for each":       {observed(finishedMain(never, running("a"), running("b")), sidecarsOf(sidecar("a"), sidecar("b")), onVirtualNode), 0, terminating("Image#1 [a b] within 1m30s")},
		"a phase's deadline has one grace period":             {observed(finishedMain(never, running("a"), running("b")), sidecarsOf(sidecar("a"), sidecar("b")), withoutKruise), 0, terminating("PodPhase#1=Succeeded [a b] within 1m0s")},
		"no grace period: Kubernetes' default":                {observed(pod(), oneProxy(), func(s *plan.Snapshot) { s.Pod.Spec.TerminationGracePeriodSeconds = nil }), 0, terminating(crrOfProxy)},
		"a grace period of zero is one second":                {observed(pod(), oneProxy(), grace(0)), 0, terminating("CRR#1 [proxy] within 31s")},
		"the largest grace period does not overflow":          {observed(pod(), oneProxy(), largestGrace), 0, terminating("CRR#1 [proxy] within 8760h0m30s")},
	})
}

// TestWhyNot covers the reason why a mode, declared without fallback, cannot be used, and what users read about it.
func TestWhyNot(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }
	server := finishedMain(never, running("proxy").runs("/app/server"))
	restartsAll := finishedMain(never, running("proxy").restarting(corev1.ContainerRestartPolicyNever,
		rule(corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn, 143)))
	disabled := func(s *plan.Snapshot) { s.Capabilities.EnabledModes = plan.EnabledModes{PodPhase: "Sometimes"} }
	for want, tc := range map[string]struct {
		mode     v1alpha1.Mode
		snapshot plan.Snapshot
		reason   v1alpha1.Reason
	}{
		"node is virtual and has no OpenKruise daemon":                          {crr, observed(pod(), oneProxy(), onVirtualNode), v1alpha1.ReasonVirtualNode},
		"node does not run OpenKruise's daemon":                                 {crr, observed(pod(), oneProxy(), onDaemonlessNode), v1alpha1.ReasonNoKruiseDaemon},
		"the operator runs with --crr=Disabled":                                 {crr, observed(pod(), oneProxy(), disabled), v1alpha1.ReasonModeDisabled},
		"the operator runs with --watch-namespaces":                             {crr, observed(pod(), oneProxy(), namespacesOnly), v1alpha1.ReasonCRRUnavailable},
		"the operator does not read nodes":                                      {crr, observed(pod(), oneProxy(), onUnreadNode), v1alpha1.ReasonNodeKindUnknown},
		"install OpenKruise, or declare another mode":                           {crr, observed(pod(), oneProxy(), withoutKruise), v1alpha1.ReasonCRRUnavailable},
		"OpenKruise stops only containers that have started":                    {crr, observed(finishedMain(never, unpullable("proxy")), oneProxy()), v1alpha1.ReasonSidecarNotStarted},
		"an exit of container proxy may restart all containers of the pod":      {crr, observed(restartsAll, oneProxy()), v1alpha1.ReasonRestartsAllContainers},
		"set its --node-kind to the kind of all nodes":                          {podPhase, observed(pod(), oneProxy(), onUnreadNode), v1alpha1.ReasonNodeKindUnknown},
		"node is virtual and has no kubelet to tear the pod down":               {podPhase, observed(pod(), oneProxy(), onVirtualNode), v1alpha1.ReasonVirtualNode},
		"the operator runs with --pod-phase=Disabled":                           {podPhase, observed(pod(), oneProxy(), disabled), v1alpha1.ReasonModeDisabled},
		"the phase would override its exit code":                                {podPhase, observed(pod(), oneProxy(respect)), v1alpha1.ReasonExitCodesRespected},
		"terminationGracePeriodSeconds is 61, more than the 60":                 {podPhase, observed(pod(), oneProxy(), grace(61*time.Second)), v1alpha1.ReasonGracePeriodTooLong},
		"the pod has lost its mark, and was marked too often":                   {podPhase, observed(pod(), oneProxy(), unmarked, markAfter(minute)), v1alpha1.ReasonMarking},
		"the operator runs with --image-swap=Disabled":                          {image, observed(pod(), oneProxy(), disabled), v1alpha1.ReasonModeDisabled},
		"no quick-exit image is set; set image in the policy":                   {image, observed(pod(), oneProxy(noImage), denying(image)), v1alpha1.ReasonNoQuickExitImage},
		"container proxy runs /app/server, which quick-exit image":              {image, observed(server, oneProxy()), v1alpha1.ReasonCommandNotCovered},
		"which quick-exit image " + quickExit:                                   {image, observed(finishedMain(never, unpullable("proxy").runs("/app/server")), oneProxy()), v1alpha1.ReasonCommandNotCovered},
		"quick-exit image " + quickExit + " is not allowed":                     {image, observed(pod(), oneProxy(from(resolve.SourcePolicy)), withoutImages), v1alpha1.ReasonImageNotAllowed},
		"use one that --allowed-quick-exit-image of the operator permits":       {image, observed(pod(), oneProxy(from(resolve.SourceEnvironment)), withoutImages), v1alpha1.ReasonImageNotAllowed},
		"may restart all containers of the pod":                                 {image, observed(restartsAll, oneProxy()), v1alpha1.ReasonRestartsAllContainers},
		"the API server denied the write, which is retried; grant the operator": {image, observed(pod(), oneProxy(), denying(image)), v1alpha1.ReasonWriteRefused},
		"does not know mode \"Freeze\"; upgrade the operator":                   {"Freeze", observed(pod(), oneProxy()), v1alpha1.ReasonUnknownSetting},
		"does not know exitCodePolicy \"RespectUnlessKilled\"":                  {podPhase, observed(pod(), oneProxy(unknownExitCodes)), v1alpha1.ReasonUnknownSetting},
	} {
		t.Run(want, func(t *testing.T) {
			declared := &tc.snapshot.View.Sidecars[0]
			declared.Mode, declared.Fallback = tc.mode, v1alpha1.FallbackDisabled
			tc.snapshot.MarkedAt = done
			decision := plan.Next(tc.snapshot, done)
			if decision.Stage != plan.StageStuck || decision.Reason != tc.reason || !strings.Contains(decision.Message, want) || len(decision.Writes) > 0 {
				t.Errorf("got %+v: %s", briefly(decision), decision.Message)
			}
		})
	}
	// As one of several modes.
	for want, s := range map[string]plan.Snapshot{
		"exit 0 would hide a failure; declare mode Image to accept that": observed(pod(), oneProxy(respect), withoutKruise),
		"does not know fallback \"Sometimes\"":                           observed(pod(), oneProxy(mode(image), noImage, unknownFallback)),
		"no mode can end container proxy (CRR: this version":             observed(pod(), oneProxy(unknownExitCodes)),
		"PodPhase: the API server denied the write":                      observed(pod(), oneProxy(), withoutKruise, denying(podPhase, image)),
	} {
		if decision := plan.Next(s, done); decision.Reason != v1alpha1.ReasonNoUsableMode || !strings.Contains(decision.Message, want) {
			t.Errorf("got %s: %s, want it to contain %q", decision.Reason, decision.Message, want)
		}
	}
}

func largestGrace(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = 1 << 62 }

// TestMaxGracePeriod covers the longest grace period of pods that end by their phase: never more than an hour, and less where no policy
// declares the sidecar.
func TestMaxGracePeriod(t *testing.T) {
	limit := func(d time.Duration) func(*plan.Snapshot) {
		return func(s *plan.Snapshot) { s.Capabilities.MaxGracePeriod = d }
	}
	for name, tc := range map[string]struct {
		grace, limit func(*plan.Snapshot)
		policy, want bool
	}{
		"policy, at the limit":          {grace(time.Hour), limit(time.Hour), true, true},
		"policy, above the limit":       {grace(time.Hour + time.Second), limit(time.Hour), true, false},
		"policy, a lower limit":         {grace(minute), limit(30 * time.Second), true, false},
		"policy, a higher limit":        {grace(time.Hour + time.Second), limit(2 * time.Hour), true, false},
		"policy, no limit":              {grace(time.Hour), limit(0), true, true},
		"policy, no limit, over 1h":     {grace(time.Hour + time.Second), limit(0), true, false},
		"policy, a limit beyond a year": {largestGrace, limit(10000 * time.Hour), true, false},
		"no policy, 60 s":               {grace(minute), limit(time.Hour), false, true},
		"no policy, 61 s":               {grace(61 * time.Second), limit(time.Hour), false, false},
		"no policy, a lower limit":      {grace(minute), limit(30 * time.Second), false, false},
		"no policy, no limit":           {grace(time.Hour), limit(0), false, true},
		"no policy, no limit, over 1h":  {grace(time.Hour + time.Second), limit(0), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			declared := oneProxy(mode(podPhase))
			if tc.policy {
				byPolicy(&declared[0])
			}
			options := plan.ModeOptions(observed(finishedMain(never), declared, tc.grace, tc.limit), declared[0])
			if options[0].Usable() != tc.want || !tc.want && options[0].Reason != v1alpha1.ReasonGracePeriodTooLong {
				t.Errorf("usable: %t, want %t (%s: %s)", options[0].Usable(), tc.want, options[0].Reason, options[0].Message)
			}
		})
	}
}

func TestSubstitutions(t *testing.T) {
	server := func() *corev1.Pod { return finishedMain(never, running("proxy").runs("/app/server")) }
	tests := map[string]struct {
		snapshot plan.Snapshot
		after    time.Duration
		want     []plan.Substitution
	}{
		"Auto cannot be substituted":                {observed(finishedMain(never), oneProxy(), withoutKruise), 0, nil},
		"a usable declared mode is not substituted": {observed(finishedMain(never), oneProxy(mode(crr))), 0, nil},
		"an unusable declared mode is substituted by the next": {
			observed(finishedMain(never), oneProxy(mode(crr)), withoutKruise),
			0, []plan.Substitution{{Container: "proxy", Wanted: crr, Used: podPhase, Reason: v1alpha1.ReasonCRRUnavailable}},
		},
		"a mode that the node lacks is substituted with its reason": {
			observed(finishedMain(never), oneProxy(mode(crr)), withoutKruise, onDaemonlessNode),
			0, []plan.Substitution{{Container: "proxy", Wanted: crr, Used: podPhase, Reason: v1alpha1.ReasonNoKruiseDaemon}},
		},
		"a phase of a pod without a mark is substituted": {
			observed(finishedMain(never), oneProxy(mode(podPhase)), unmarked, markAfter(minute)),
			0, []plan.Substitution{{Container: "proxy", Wanted: podPhase, Used: image, Reason: v1alpha1.ReasonMarking}},
		},
		"an unusable mode without fallback has no substitute": {
			observed(finishedMain(never), oneProxy(mode(crr), noFallback), withoutKruise),
			0, []plan.Substitution{{Container: "proxy", Wanted: crr, Reason: v1alpha1.ReasonCRRUnavailable}},
		},
		"an image that does not cover the command is substituted": {
			observed(server(), oneProxy(mode(image))),
			0, []plan.Substitution{{Container: "proxy", Wanted: image, Used: crr, Reason: v1alpha1.ReasonCommandNotCovered}},
		},
		"a swap in progress is not substituted":          {observed(server(), oneProxy(mode(image)), attempted(swap("proxy"))), 0, nil},
		"a failed swap is not substituted":               {observed(server(), oneProxy(mode(image)), attempted(swap("proxy"))), time.Hour, nil},
		"a failed mode is a failure, not a substitution": {observed(finishedMain(never), oneProxy(mode(crr)), withoutKruise, attempted(crrAttempt(1, "proxy"))), time.Hour, nil},
		"a mark with an end reports substitutions": {
			observed(newPod(never, running("main"), running("proxy")), oneProxy(mode(crr)), withoutKruise, unmarked),
			0, []plan.Substitution{{Container: "proxy", Wanted: crr, Used: podPhase, Reason: v1alpha1.ReasonCRRUnavailable}},
		},
		"a mark without an end reports none":          {observed(newPod(never, running("main"), running("proxy")), oneProxy(mode(crr), drain(1)), withoutKruise, unmarked), 0, nil},
		"a sidecar being created has no substitution": {observed(finishedMain(never, creating("proxy")), oneProxy(mode(crr))), 0, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.Next(test.snapshot, done.Add(test.after)).Substitutions
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(plan.Substitution{}, "Message")); diff != "" {
				t.Errorf("Substitutions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRestarts(t *testing.T) {
	two := func(changes ...func(*resolve.Sidecar)) []resolve.Sidecar {
		return sidecarsOf(sidecar("logs", changes...), sidecar("proxy", changes...))
	}
	for name, test := range map[string]struct {
		policy   corev1.RestartPolicy
		sidecars []resolve.Sidecar
		changes  func(*plan.Snapshot)
		want     int
	}{
		"a swapped image restarts its container": {onFailure, two(mode(image)), withoutKruise, 2},
		"restarts do not count under Never":      {never, two(mode(image)), withoutKruise, 0},
		"a phase restarts none":                  {onFailure, two(mode(podPhase)), withoutKruise, 0},
		"Auto restarts none":                     {onFailure, two(), attempted(), 0},
		"the last of two that a CRR stops":       {onFailure, two(mode(crr)), attempted(), 1},
		"one that a CRR stops before the other":  {onFailure, sidecarsOf(sidecar("logs"), sidecar("proxy", order(1))), attempted(), 1},
		"one CRR, one new image":                 {onFailure, sidecarsOf(sidecar("logs", mode(crr)), sidecar("proxy", mode(image))), attempted(), 2},
		"no risk without a write":                {onFailure, two(mode(image)), attempted(swap("logs", "proxy")), 0},
		"a single one, which ends with the pod":  {onFailure, sidecarsOf(sidecar("proxy", mode(crr)), sidecar("logs")), func(s *plan.Snapshot) { endContainers(s, "logs") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := observed(finishedMain(test.policy, running("logs"), running("proxy")), test.sidecars, test.changes)
			if decision := plan.Next(s, done); decision.Restarts != test.want {
				t.Errorf("got %d, want %d: %+v", decision.Restarts, test.want, briefly(decision))
			}
		})
	}
}

// TestAutoTriesEachMode finds a mode that the order of mode Auto lacks, or that nothing says when to use.
func TestAutoTriesEachMode(t *testing.T) {
	options := plan.ModeOptions(observed(finishedMain(never, running("proxy")), oneProxy()), sidecar("proxy"))
	for _, feature := range settings.Features() {
		known := func(o plan.ModeOption) bool {
			return o.Mode == feature.Mode && o.Reason != v1alpha1.ReasonUnknownSetting
		}
		if feature.Mode != "" && !slices.ContainsFunc(options, known) {
			t.Errorf("mode %s is not among %+v", feature.Mode, options)
		}
	}
}

// ModeOptions ignores failed attempts, and answers before the main containers are done. TestFallbackOrder covers the order.
func TestModeOptions(t *testing.T) {
	for name, s := range map[string]plan.Snapshot{
		"main runs":       observed(newPod(never, running("main"), running("proxy")), oneProxy(), unmarked),
		"failed attempts": observed(finishedMain(never), oneProxy(), attempted(crrAttempt(1, "proxy"), swap("proxy"))),
	} {
		want := []plan.ModeOption{{Mode: crr}, {Mode: podPhase}, {Mode: image}}
		if diff := cmp.Diff(want, plan.ModeOptions(s, s.View.Sidecars[0])); diff != "" {
			t.Errorf("%s: ModeOptions() (-want +got):\n%s", name, diff)
		}
	}
}

func TestAllAttempts(t *testing.T) {
	phase := plan.Attempt{Mode: podPhase, Number: 1, Started: done}
	for name, tc := range map[string]struct {
		snapshot plan.Snapshot
		want     []plan.Attempt
	}{
		"none":                 {observed(finishedMain(never), oneProxy()), nil},
		"of the snapshot":      {observed(finishedMain(never), oneProxy(), attempted(crrAttempt(1, "proxy"))), []plan.Attempt{crrAttempt(1, "proxy")}},
		"the phase":            {observed(finishedMain(never), oneProxy(), endedByPhase, attempted(crrAttempt(1, "proxy"))), []plan.Attempt{crrAttempt(1, "proxy"), phase}},
		"a mark while it runs": {observed(newPod(never, running("main"), running("proxy")), oneProxy(), ending(v1alpha1.EndPodPhase)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plan.AllAttempts(tc.snapshot)); diff != "" {
				t.Errorf("AllAttempts() (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFailedMain covers the first attempt after a main container has failed under Never. Kubernetes matches a Job's
// podFailurePolicy against the exit codes of all containers, so an ignored sidecar must not leave one. A swapped container
// exits 0.
func TestFailedMain(t *testing.T) {
	pod := func(sidecars ...container) *corev1.Pod {
		return newPod(never, append([]container{exited("main", 1)}, sidecars...)...)
	}
	proxy := func() *corev1.Pod { return pod(running("proxy")) }

	runScenarios(t, map[string]scenario{
		"Auto creates a CRR when the swap has failed":          {observed(proxy(), oneProxy(), attempted(swap("proxy"))), minute, fallingBack(crrOfProxy)},
		"Auto creates a CRR if the image lacks the command":    {observed(pod(running("proxy").runs("/app/server")), oneProxy()), 0, terminating(crrOfProxy)},
		"Auto creates a CRR when there is no image":            {observed(proxy(), oneProxy(noImage)), 0, terminating(crrOfProxy)},
		"Auto creates a CRR when the image is not allowed":     {observed(proxy(), oneProxy(from(resolve.SourcePolicy)), withoutImages), 0, terminating(crrOfProxy)},
		"Auto writes phase Failed last":                        {observed(proxy(), oneProxy(noImage), withoutKruise), 0, terminating(failedOfProxy)},
		"Auto writes phase Failed when the others have failed": {observed(proxy(), oneProxy(), attempted(swap("proxy"), crrAttempt(1, "proxy"))), minute, fallingBack(failedOfProxy)},
		"Auto swaps the image of a sidecar that never started": {observed(pod(unpullable("proxy")), oneProxy()), 0, terminating(swapOfProxy)},
		"Auto swaps the image on a virtual node":               {observed(proxy(), oneProxy(), onVirtualNode), 0, terminating(swapOfProxy)},
		"Auto swaps the image on a node without the daemon":    {observed(proxy(), oneProxy(), onDaemonlessNode), 0, terminating(swapOfProxy)},
		"a pod that would end by its phase swaps the image":    {observed(proxy(), oneProxy(), withoutKruise, ending(v1alpha1.EndPodPhase)), 0, terminating(swapOfProxy)},
		"a phase Failed replaces the end in advance":           {observed(proxy(), oneProxy(noImage), withoutKruise, ending(v1alpha1.EndPodPhase)), 0, terminating(failedOfProxy)},
		"no phase Failed while a respected sidecar runs": {
			observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy", noImage)), withoutKruise),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a declared CRR falls back to the image":      {observed(proxy(), oneProxy(mode(crr)), withoutKruise), 0, fallingBack(swapOfProxy)},
		"a declared PodPhase falls back to the image": {observed(proxy(), oneProxy(mode(podPhase)), withoutPodPhase), 0, fallingBack(swapOfProxy)},
		"a declared Image falls back to a CRR":        {observed(proxy(), oneProxy(mode(image), noImage)), 0, fallingBack(crrOfProxy)},
		"each of two sidecars by its own exit codes": {
			observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy"))),
			0, terminating(swapOfProxy, "CRR#1 [logs] within 1m0s"),
		},
		"each of two sidecars by its own mode": {
			observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", mode(crr)), sidecar("proxy"))),
			0, terminating(swapOfProxy, "CRR#1 [logs] within 1m0s"),
		},
		"a declared PodPhase waits for the swap of the other": {observed(pod(running("logs"), running("proxy")), sidecarsOf(sidecar("logs", mode(podPhase)), sidecar("proxy"))), 0, terminating(swapOfProxy)},
		"a main that never restarts under OnFailure": {
			observed(newPod(onFailure, exited("main", 1).restarting(corev1.ContainerRestartPolicyNever), running("proxy")), oneProxy()),
			0, terminating(swapOfProxy),
		},
	})
}
