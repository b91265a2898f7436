//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Limits of a dump.
const (
	dumpTimeout     = 20 * time.Second
	dumpedPods      = 20
	dumpedEvents    = 80
	dumpedLogLines  = 80
	eventTimeFormat = "15:04:05.000"
)

// dump logs the state of the test's namespace.
func (t *Test) dump() {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	defer cancel()
	var out strings.Builder
	fmt.Fprintf(&out, "State of namespace %s\n", t.Namespace)
	t.Recorder.Look(func(seen Seen) { dumpSeen(&out, seen) })
	t.dumpCRRs(ctx, &out)
	t.dumpPolicies(ctx, &out)
	t.dumpEvents(ctx, &out)
	fmt.Fprintf(&out, "Operator log:\n%s", t.OperatorLog(ctx, dumpedLogLines))
	t.Log(out.String())
}

func dumpSeen(out *strings.Builder, seen Seen) {
	names := slices.Sorted(maps.Keys(seen.jobs))
	for _, name := range names[:min(len(names), dumpedPods)] {
		status := seen.jobs[name].Status
		fmt.Fprintf(out, "Job %s: active=%d succeeded=%d failed=%d", name, status.Active, status.Succeeded, status.Failed)
		for _, condition := range status.Conditions {
			fmt.Fprintf(out, " %s=%s(%s %s)", condition.Type, condition.Status, condition.Reason, condition.Message)
		}
		out.WriteString("\n")
	}
	pods := seen.AllPods()
	for _, record := range pods[:min(len(pods), dumpedPods)] {
		fmt.Fprintf(out, "Pod %s deleted=%t phases: %s\n  %s\n  labels %v annotations %v\n", record.Pod.Name, record.Deleted, record.PhaseLog(),
			describeContainers(record.Pod), record.Pod.Labels, record.Pod.Annotations)
	}
	if len(pods) > dumpedPods {
		fmt.Fprintf(out, "and %d more pods\n", len(pods)-dumpedPods)
	}
}

func (t *Test) dumpCRRs(ctx context.Context, out *strings.Builder) {
	list := KruiseList("ContainerRecreateRequest")
	if err := t.Client.List(ctx, list, client.InNamespace(t.Namespace)); err != nil {
		fmt.Fprintf(out, "CRRs: %v\n", err)
		return
	}
	for i := range list.Items[:min(len(list.Items), dumpedPods)] {
		spec, _ := yaml.Marshal(list.Items[i].Object["spec"])
		status, _ := yaml.Marshal(list.Items[i].Object["status"])
		fmt.Fprintf(out, "CRR %s\n%s%s", list.Items[i].GetName(), indent(spec), indent(status))
	}
}

func (t *Test) dumpPolicies(ctx context.Context, out *strings.Builder) {
	policies := &v1alpha1.SidecarTerminationPolicyList{}
	if err := t.Client.List(ctx, policies, client.InNamespace(t.Namespace)); err != nil {
		fmt.Fprintf(out, "Policies: %v\n", err)
		return
	}
	for i := range policies.Items {
		spec, _ := yaml.Marshal(policies.Items[i].Spec)
		status, _ := yaml.Marshal(policies.Items[i].Status)
		fmt.Fprintf(out, "SidecarTerminationPolicy %s\n%s%s", policies.Items[i].Name, indent(spec), indent(status))
	}
}

func (t *Test) dumpEvents(ctx context.Context, out *strings.Builder) {
	events := &corev1.EventList{}
	if err := t.Client.List(ctx, events, client.InNamespace(t.Namespace)); err != nil {
		fmt.Fprintf(out, "Events: %v\n", err)
		return
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b)) })
	first := max(0, len(events.Items)-dumpedEvents)
	for i := range events.Items[first:] {
		event := &events.Items[first+i]
		fmt.Fprintf(out, "Event %s %s/%s %s %s: %s\n", eventTime(event).Format(eventTimeFormat), event.InvolvedObject.Kind,
			event.InvolvedObject.Name, event.Type, event.Reason, event.Message)
	}
}

func eventTime(event *corev1.Event) time.Time {
	switch {
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	default:
		return event.CreationTimestamp.Time
	}
}

func indent(text []byte) string {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "  " + strings.Join(lines, "\n  ") + "\n"
}
