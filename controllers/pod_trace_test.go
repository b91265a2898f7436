// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podtest"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/tracing"
)

// traced is a decision at a time after the end of the main container.
type traced struct {
	after    int // milliseconds after the main container
	decision plan.Decision
}

func TestTraces(t *testing.T) {
	stabilizing := plan.Decision{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonStabilizing, MainsDone: podtest.Noon}
	fallback := terminating(v1alpha1.ModeImage)
	fallback.Failures = []plan.Failure{failureOf("proxy", "too slow")}
	ended := plan.Decision{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated, MainsDone: podtest.Noon}
	for name, tc := range map[string]struct {
		drain     time.Duration
		decisions []traced
		want      []string // NAME BY: START-END
	}{
		"one attempt": {
			0, []traced{{-60000, waiting()}, {200, stabilizing}, {1700, terminating(v1alpha1.ModePodPhase)}, {4000, ended}, {5000, ended}},
			[]string{`Seen ["Operator"]: 0-200`, `AttemptStarted ["Operator"]: 200-1700`, `SidecarsEnded ["Node"]: 1700-4000`, "SidecarTermination : 0-4000"},
		},
		"two attempts": {
			0, []traced{{-60000, waiting()}, {300, terminating(v1alpha1.ModeCRR)}, {30000, fallback}, {31000, ended}},
			[]string{
				`Seen ["Operator"]: 0-300`, `AttemptStarted ["Operator"]: 300-300`, `AttemptStarted ["OpenKruise"]: 300-30000`,
				`SidecarsEnded ["Node"]: 30000-31000`, "SidecarTermination : 0-31000",
			},
		},
		"a drain": {
			5 * time.Second, []traced{
				{-60000, waiting()}, {200, plan.Decision{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, MainsDone: podtest.Noon}},
				{5100, terminating(v1alpha1.ModeCRR)}, {7000, ended},
			},
			[]string{
				`Seen ["Operator"]: 0-200`, `Drained ["Policy"]: 200-5000`, `AttemptStarted ["Operator"]: 5000-5100`,
				`SidecarsEnded ["OpenKruise"]: 5100-7000`, "SidecarTermination : 0-7000",
			},
		},
		"a main container that ran again": {
			0, []traced{{-60000, terminating(v1alpha1.ModeCRR)}, {-30000, waiting()}, {400, terminating(v1alpha1.ModeCRR)}, {2000, ended}},
			[]string{`Seen ["Operator"]: 0-400`, `AttemptStarted ["Operator"]: 400-400`, `SidecarsEnded ["OpenKruise"]: 400-2000`, "SidecarTermination : 0-2000"},
		},
		"an attempt of an earlier process": {
			0, []traced{{900, inProgress(v1alpha1.ModeCRR)}, {2000, terminated(v1alpha1.ModeCRR)}},
			[]string{`SidecarsEnded ["Operator","OpenKruise"]: 0-2000`, "SidecarTermination : 0-2000"},
		},
		"no attempt": {0, []traced{{-60000, waiting()}, {2000, ended}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStatesTest(t)
			exporter := tracetest.NewInMemoryExporter()
			st.tracer = tracing.WithProcessor(sdktrace.NewSimpleSpanProcessor(exporter))
			resolved := resolvedPodOf(podtest.New(podtest.MainDone), mesh)
			setDrain(&resolved, tc.drain)
			for _, step := range tc.decisions {
				st.clock.SetTime(podtest.Noon.Add(time.Duration(step.after) * time.Millisecond))
				st.record(resolved, step.decision, nil)
			}
			var got []string
			for _, span := range exporter.GetSpans() {
				by := ""
				for _, attribute := range span.Attributes {
					if attribute.Key == "sidecar_termination.by" {
						by = attribute.Value.String()
					}
				}
				got = append(got, fmt.Sprintf("%s %s: %d-%d", span.Name, by,
					span.StartTime.Sub(podtest.Noon).Milliseconds(), span.EndTime.Sub(podtest.Noon).Milliseconds()))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		})
	}
}

func setDrain(resolved *resolvedPod, drain time.Duration) {
	view := resolve.View{Mains: resolved.resolution.Enforced.Mains}
	for _, sidecar := range resolved.resolution.Enforced.Sidecars {
		sidecar.Drain = drain
		view.Sidecars = append(view.Sidecars, sidecar)
	}
	resolved.resolution.Enforced = view
}

func TestNothingIsKeptWithoutTraces(t *testing.T) {
	st := newStatesTest(t)
	resolved := resolvedPodOf(podtest.New(podtest.MainDone), mesh)
	st.record(resolved, terminating(v1alpha1.ModeCRR), nil)
	if state := st.pods[keyOf(resolved.pod)]; state.facts != nil {
		t.Errorf("the pod has %+v", state.facts)
	}
}
