// SPDX-License-Identifier: Apache-2.0

// Package tracing exports one OpenTelemetry trace for each termination. It is off unless the environment names an endpoint.
package tracing

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/timeline"
)

// Termination is what a trace describes.
type Termination struct {
	Pod types.NamespacedName
	UID types.UID
	// Policy is empty if environment variables declare the sidecars.
	Policy  string
	Mode    v1alpha1.Mode
	Attempt int // from 1
	Outcome v1alpha1.TerminationOutcome
	// Facts have the times. MainsDone and SidecarsEnded are known.
	Facts timeline.Facts
}

// Tracer exports traces. A nil Tracer exports none.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// FromEnvironment returns a tracer with the settings of the standard OTEL_* variables, or nil without an endpoint. Spans wait in
// a bounded queue. If it is full, they are dropped. The endpoint need not be reachable.
func FromEnvironment(ctx context.Context, service, version string) (*Tracer, error) {
	if !enabled() {
		return nil, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("export traces: read the resource attributes: %w", err)
	}
	return newTracer(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// enabled reports whether the environment names an endpoint and does not turn traces off.
func enabled() bool {
	endpoint := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") + os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	return endpoint != "" && os.Getenv("OTEL_SDK_DISABLED") != "true" && os.Getenv("OTEL_TRACES_EXPORTER") != "none"
}

// WithProcessor returns a tracer for tests.
func WithProcessor(processor sdktrace.SpanProcessor) *Tracer {
	return newTracer(sdktrace.WithSpanProcessor(processor))
}

func newTracer(options ...sdktrace.TracerProviderOption) *Tracer {
	// The provider is not global: the libraries of the operator would export spans too.
	provider := sdktrace.NewTracerProvider(options...)
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/sidecar-termination/operator")}
}

// Export enqueues the trace: a root span from the end of the main containers to the end of the sidecars, and a child for each step
// of known time. It never blocks.
func (t *Tracer) Export(of Termination) {
	if t == nil {
		return
	}
	start, end := of.Facts.MainsDone.Time, of.Facts.SidecarsEnded.Time
	if end.Before(start) { // the clock of the node is ahead
		end = start
	}
	ctx, root := t.tracer.Start(context.Background(), "SidecarTermination", trace.WithTimestamp(start), trace.WithAttributes(
		attribute.String("k8s.namespace.name", of.Pod.Namespace), attribute.String("k8s.pod.name", of.Pod.Name),
		attribute.String("k8s.pod.uid", string(of.UID)), attribute.String("sidecar_termination.policy", of.Policy),
		attribute.String("sidecar_termination.mode", string(of.Mode)), attribute.Int("sidecar_termination.attempt", of.Attempt),
		attribute.String("sidecar_termination.outcome", string(of.Outcome)),
	))
	for _, step := range timeline.New(of.Facts).Steps {
		if step.StartTime == nil || step.EndTime == nil {
			continue
		}
		_, span := t.tracer.Start(ctx, string(step.Name), trace.WithTimestamp(step.StartTime.Time), trace.WithAttributes(attributes(step)...))
		span.End(trace.WithTimestamp(step.EndTime.Time))
	}
	root.End(trace.WithTimestamp(end))
}

func attributes(step timeline.Step) []attribute.KeyValue {
	var by []string
	for _, party := range step.By {
		by = append(by, string(party))
	}
	all := []attribute.KeyValue{attribute.StringSlice("sidecar_termination.by", by)}
	if step.Name == timeline.StepAttemptStarted {
		all = append(all, attribute.String("sidecar_termination.mode", string(step.Mode)), attribute.Int("sidecar_termination.attempt", step.Attempt))
	}
	return all
}

// Shutdown exports the enqueued traces, and gives up after the timeout.
func (t *Tracer) Shutdown(timeout time.Duration) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.provider.Shutdown(ctx)
}
