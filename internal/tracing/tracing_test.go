// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/timeline"
	"github.com/sidecar-termination/operator/internal/tracing"
)

var done = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(milliseconds int) timeline.Moment {
	return timeline.Moment{Time: done.Add(time.Duration(milliseconds) * time.Millisecond)}
}

func termination() tracing.Termination {
	return tracing.Termination{
		Pod: types.NamespacedName{Namespace: "batch", Name: "report-x4mfd"}, UID: "4a1b", Policy: "SidecarTerminationPolicy/mesh",
		Mode: v1alpha1.ModeCRR, Attempt: 1, Outcome: v1alpha1.OutcomeTerminated,
		Facts: timeline.Facts{
			MainsDone: after(0), Seen: after(120), SidecarsEnded: after(2500),
			Attempts: []timeline.Attempt{{Mode: v1alpha1.ModeCRR, For: v1alpha1.ModeCRR, Number: 1, Started: after(130)}},
		},
	}
}

// span is what the tests compare.
type span struct {
	Name       string
	Start, End int // milliseconds after the end of the main containers
	Attributes map[string]string
	Child      bool
}

// export returns the spans of the termination.
func export(t *testing.T, of tracing.Termination) []span {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tracing.WithProcessor(sdktrace.NewSimpleSpanProcessor(exporter)).Export(of)
	var spans []span
	for _, stub := range exporter.GetSpans() {
		got := span{
			Name: stub.Name, Start: int(stub.StartTime.Sub(done).Milliseconds()), End: int(stub.EndTime.Sub(done).Milliseconds()),
			Attributes: map[string]string{}, Child: stub.Parent.IsValid(),
		}
		for _, attribute := range stub.Attributes {
			got.Attributes[string(attribute.Key)] = attribute.Value.String()
		}
		spans = append(spans, got)
	}
	return spans
}

func TestTraceOfTermination(t *testing.T) {
	want := []span{
		{"Seen", 0, 120, map[string]string{"sidecar_termination.by": `["Operator"]`}, true},
		{"AttemptStarted", 120, 130, map[string]string{
			"sidecar_termination.by": `["Operator"]`, "sidecar_termination.mode": "CRR", "sidecar_termination.attempt": "1",
		}, true},
		{"SidecarsEnded", 130, 2500, map[string]string{"sidecar_termination.by": `["OpenKruise"]`}, true},
		{"SidecarTermination", 0, 2500, map[string]string{
			"k8s.namespace.name": "batch", "k8s.pod.name": "report-x4mfd", "k8s.pod.uid": "4a1b",
			"sidecar_termination.policy": "SidecarTerminationPolicy/mesh", "sidecar_termination.mode": "CRR",
			"sidecar_termination.attempt": "1", "sidecar_termination.outcome": "Terminated",
		}, false},
	}
	if diff := cmp.Diff(want, export(t, termination())); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

func TestTraceWithUnknownTimes(t *testing.T) {
	of := termination()
	of.Facts.Seen, of.Facts.Attempts[0].Started = timeline.Moment{Note: timeline.NotRecorded}, timeline.Moment{Note: timeline.NotRecorded}
	of.Facts.SidecarsEnded = after(-400) // the clock of the node is ahead
	spans := export(t, of)
	want := []span{{"SidecarsEnded", 0, 0, map[string]string{"sidecar_termination.by": `["Operator","OpenKruise"]`}, true}}
	if diff := cmp.Diff(want, spans[:len(spans)-1]); diff != "" {
		t.Errorf("children (-want +got):\n%s", diff)
	}
	if root := spans[len(spans)-1]; root.Start != 0 || root.End != 0 {
		t.Errorf("root span is from %d to %d", root.Start, root.End)
	}
}

func TestTracesAreOffWithoutAnEndpoint(t *testing.T) {
	for name, tc := range map[string]struct {
		environment map[string]string
		on          bool
	}{
		"nothing is set":           {nil, false},
		"endpoint":                 {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}, true},
		"endpoint of traces":       {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4317"}, true},
		"endpoint and no exporter": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_TRACES_EXPORTER": "none"}, false},
		"endpoint and no SDK":      {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_SDK_DISABLED": "true"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{
				"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED",
			} {
				t.Setenv(key, tc.environment[key])
			}
			tracer, err := tracing.FromEnvironment(t.Context(), "operator", "v1")
			if err != nil || (tracer != nil) != tc.on {
				t.Errorf("got tracer %v, error %v", tracer, err)
			}
			if err := tracer.Shutdown(time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	var off *tracing.Tracer
	off.Export(termination())
}

// receiver is an OTLP receiver.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	received chan *collector.ExportTraceServiceRequest
}

func (r *receiver) Export(ctx context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	select {
	case r.received <- request:
		return &collector.ExportTraceServiceResponse{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve starts a receiver for the tracer of the environment.
func serve(t *testing.T, received chan *collector.ExportTraceServiceRequest) *tracing.Tracer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, &receiver{received: received})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=prod")
	tracer, err := tracing.FromEnvironment(t.Context(), "operator", "v1")
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

func TestShutdownExportsToReceiver(t *testing.T) {
	received := make(chan *collector.ExportTraceServiceRequest, 1)
	tracer := serve(t, received)
	tracer.Export(termination())
	if err := tracer.Shutdown(time.Minute); err != nil {
		t.Fatal(err)
	}
	request := <-received
	resource := map[string]string{}
	for _, attribute := range request.ResourceSpans[0].Resource.Attributes {
		resource[attribute.Key] = attribute.Value.GetStringValue()
	}
	for key, want := range map[string]string{"service.name": "operator", "service.version": "v1", "k8s.cluster.name": "prod"} {
		if resource[key] != want {
			t.Errorf("resource attribute %s is %q, want %q", key, resource[key], want)
		}
	}
	var names []string
	traces := map[string]bool{}
	for _, span := range request.ResourceSpans[0].ScopeSpans[0].Spans {
		names, traces[string(span.TraceId)] = append(names, span.Name), true
	}
	if diff := cmp.Diff([]string{"Seen", "AttemptStarted", "SidecarsEnded", "SidecarTermination"}, names); diff != "" || len(traces) != 1 {
		t.Errorf("%d traces; spans (-want +got):\n%s", len(traces), diff)
	}
}

func TestStuckReceiverBlocksNothing(t *testing.T) {
	tracer := serve(t, make(chan *collector.ExportTraceServiceRequest))
	// More spans than the queue of the SDK holds. Export would never return if it waited for the receiver.
	for range 2000 {
		tracer.Export(termination())
	}
	if err := tracer.Shutdown(time.Millisecond); err == nil {
		t.Error("the shutdown does not report that traces were lost")
	}
}
