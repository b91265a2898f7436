// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// load is a number of main containers that end.
type load struct {
	name   string
	pods   int
	rate   rate.Limit // how many end in a second
	starts int        // other pods that start at the same time
}

// bursts measures main containers that end as fast as clients can report.
func (s *session) bursts(ctx context.Context, versions cluster.Versions) error {
	return s.measureEnds(ctx, versions, load{name: fmt.Sprintf("burst of %d", s.pods), pods: s.pods, rate: rate.Inf})
}

// steady measures main containers that end at a steady rate, without and with a burst of pods that start, which the operator marks.
func (s *session) steady(ctx context.Context, versions cluster.Versions) error {
	const perSecond, starts = 50, 2000
	name := fmt.Sprintf("%d at %d/s", s.pods, perSecond)
	return s.measureEnds(ctx, versions, load{name: name, pods: s.pods, rate: perSecond},
		load{name: fmt.Sprintf("%s while %d pods start", name, starts), pods: s.pods, rate: perSecond, starts: starts})
}

// measureEnds measures the loads with each contender in each mode.
func (s *session) measureEnds(ctx context.Context, versions cluster.Versions, loads ...load) (err error) {
	binaries, err := s.cluster.Builder.Ensure(ctx, versions.KruiseTool())
	if err != nil {
		return err
	}
	e, err := s.startServer(ctx, versions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	e.kruisePath = filepath.Join(binaries, "kruise-manager")
	s.report.Setup += ", OpenKruise " + versions.Kruise
	if err := s.cluster.WriteKruiseObjects(ctx, e.config, versions); err != nil {
		return err
	}
	return s.inTurn(s.runs, "ends", []string{contenderBare, contenderOperator, contenderKruise}, func(contender string) error {
		modes := []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase}
		if contender == contenderKruise {
			modes = []v1alpha1.Mode{v1alpha1.ModeCRR}
		}
		return s.measureModes(ctx, e, contender, modes, loads...)
	})
}

// measureModes starts the contender, and measures the loads in each mode. PodPhase must be the last one: the operator reads its pods once
// more after they have finished.
func (s *session) measureModes(ctx context.Context, e *environment, contender string, modes []v1alpha1.Mode, loads ...load) (err error) {
	defer func() { err = errors.Join(err, e.stopContender(ctx)) }()
	if err := e.start(ctx, contender); err != nil {
		return err
	}
	for _, mode := range modes {
		// The first requests meet a webhook and watches that have just started.
		if _, err := e.end(ctx, contender, mode, load{pods: 20, rate: rate.Inf}); err != nil {
			return err
		}
		for _, load := range loads {
			run, err := e.end(ctx, contender, mode, load)
			if err != nil {
				return err
			}
			s.report.add(fmt.Sprintf("%s, %s", load.name, mode), contender, run)
		}
	}
	return nil
}

// end ends the main containers of pods in a namespace of its own. Latencies are from the acknowledged end of a main container until the
// watch shows the termination.
func (e *environment) end(ctx context.Context, contender string, mode v1alpha1.Mode, load load) (run figures, err error) {
	count := load.pods
	// Long enough for a contender that acts on 20 pods a second.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+time.Duration(count+load.starts)*50*time.Millisecond)
	defer cancel()
	namespace, err := createNamespace(ctx, e.client)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cleanUp(ctx, e.client, namespace)) }()
	pods, err := e.createBurst(ctx, namespace, contender, mode, count)
	if err != nil {
		return nil, err
	}
	seen, err := e.watchEnds(ctx, namespace, mode, count)
	if err != nil {
		return nil, err
	}
	before, err := e.readIdle(ctx)
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() {
		_, err := e.createPods(ctx, namespace, "start", load.starts, runs)
		started <- err
	}()
	write, limiter := bareTerminator(e.client, mode), rate.NewLimiter(load.rate, 1)
	reported := make([]time.Time, count)
	err = each(ctx, count, func(ctx context.Context, i int) error {
		if err := limiter.Wait(ctx); err != nil {
			return err
		}
		pod, err := e.writeStatus(ctx, pods[i], func(pod *corev1.Pod) { exits(pod, 0) })
		if reported[i] = time.Now(); err != nil || contender != contenderBare {
			return err
		}
		return write(ctx, pod)
	})
	if err := errors.Join(err, <-started); err != nil {
		return nil, err
	}
	at, err := seen()
	if err != nil {
		return nil, err
	}
	// Events are written last.
	after, err := e.readIdle(ctx)
	if err != nil {
		return nil, err
	}
	run = perPod(before, after, count)
	latencies := make([]time.Duration, count)
	for i, pod := range pods {
		latencies[i] = at[pod.Name].Sub(reported[i])
	}
	slices.Sort(latencies)
	run["latency p50, ms"], run["latency p99, ms"] = milliseconds(percentile(latencies, 50)), milliseconds(percentile(latencies, 99))
	first, last := slices.MinFunc(reported, time.Time.Compare), slices.MaxFunc(slices.Collect(maps.Values(at)), time.Time.Compare)
	run["pods/s"] = float64(count) / last.Sub(first).Seconds()
	return run, nil
}

// perPod returns by how much the counters have grown for each pod.
func perPod(before, after figures, pods int) figures {
	grown := figures{"requests PATCH pods/status per pod": -1} // by the benchmark itself
	for name, value := range after {
		if value != before[name] {
			grown[name+" per pod"] += (value - before[name]) / float64(pods)
		}
	}
	return grown
}

// createBurst creates pods whose sidecars the contender will end, and for the operator a policy. It has marked them by then, if it does.
func (e *environment) createBurst(ctx context.Context, namespace, contender string, mode v1alpha1.Mode, count int) ([]*corev1.Pod, error) {
	if contender != contenderOperator {
		return e.createPods(ctx, namespace, "import", count, runs)
	}
	if err := createPolicy(ctx, e.client, namespace, "bench", burstLabels, mode); err != nil {
		return nil, err
	}
	pods, err := e.createPods(ctx, namespace, "import", count, runs)
	if err == nil && mode == v1alpha1.ModePodPhase {
		err = e.awaitMarks(ctx, namespace)
	}
	return pods, err
}

// awaitMarks waits until the operator has marked the pods. On a busy machine all processes are idle before it has.
func (e *environment) awaitMarks(ctx context.Context, namespace string) error {
	unmarked := metav1.ListOptions{LabelSelector: v1alpha1.LabelOutcome + "!=" + v1alpha1.OutcomeMainContainers}
	return progress.Poll(ctx, 50*time.Millisecond, 5*time.Minute, func(ctx context.Context) error {
		list, err := e.kubelets.CoreV1().Pods(namespace).List(ctx, unmarked)
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are not marked", len(list.Items))
		}
		return err
	})
}

// crrKind are OpenKruise's requests to end containers.
var crrKind = schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "ContainerRecreateRequest"}

// watchEnds starts a watch that no contender shares, and returns a function that waits until the terminations of all pods have been seen,
// and returns when. It watches metadata only, which costs the machine least. The API server may end a watch at any time.
func (e *environment) watchEnds(ctx context.Context, namespace string, mode v1alpha1.Mode, pods int) (wait func() (map[string]time.Time, error), err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if mode == v1alpha1.ModeCRR {
		list.SetGroupVersionKind(crrKind.GroupVersion().WithKind(crrKind.Kind + "List"))
	}
	if err := e.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	events, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return e.client.Watch(ctx, list, &client.ListOptions{Namespace: namespace, Raw: &options})
		},
	})
	if err != nil {
		return nil, err
	}
	at, done := map[string]time.Time{}, make(chan error, 1)
	go func() {
		defer events.Stop()
		done <- recordEnds(events.ResultChan(), mode, pods, at)
	}()
	return func() (map[string]time.Time, error) { return at, <-done }, nil
}

// recordEnds records when each pod's termination is first seen.
func recordEnds(events <-chan watch.Event, mode v1alpha1.Mode, pods int, at map[string]time.Time) error {
	for event := range events {
		object, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("watch the pods: %w", apierrors.FromObject(event.Object))
		}
		pod := object.Name
		switch {
		case mode == v1alpha1.ModeCRR && len(object.OwnerReferences) > 0:
			pod = object.OwnerReferences[0].Name
		case mode == v1alpha1.ModePodPhase && strings.HasPrefix(object.Annotations[v1alpha1.AnnotationMainContainers], v1alpha1.MainsDecided):
		case mode == v1alpha1.ModeImage && object.Annotations[v1alpha1.AnnotationImageSwap] != "":
		default:
			continue
		}
		if _, known := at[pod]; !known {
			at[pod] = time.Now()
		}
		if len(at) == pods {
			return nil
		}
	}
	return fmt.Errorf("%d of %d pods were acted on in time", len(at), pods)
}

// bareTerminator returns a function that makes the operator's write of the mode, without a decision.
func bareTerminator(c client.Client, mode v1alpha1.Mode) func(ctx context.Context, pod *corev1.Pod) error {
	write := plan.Write{
		Mode: mode, Containers: []string{sidecar}, Images: map[string]string{sidecar: quickExitImage},
		Mark: &plan.Mark{IgnoredExitCodes: []string{sidecar}, End: v1alpha1.EndPodPhase}, Timeout: time.Minute,
	}
	bare := map[v1alpha1.Mode]terminator.Terminator{
		v1alpha1.ModeCRR:      &crr.Terminator{Client: c, Server: c, Clock: clock.RealClock{}},
		v1alpha1.ModePodPhase: &podphase.Terminator{Client: c},
		v1alpha1.ModeImage:    &image.Terminator{Client: c, Clock: clock.RealClock{}},
	}[mode]
	return func(ctx context.Context, pod *corev1.Pod) error {
		applied, err := bare.Execute(ctx, pod, write)
		return cmp.Or(err, applied.Answer)
	}
}

// requestsServed counts the requests that the API server has served, by verb and resource such as
// "requests POST containerrecreaterequests" or "requests PATCH pods/status (409)".
func (e *environment) requestsServed(ctx context.Context) (figures, error) {
	content, err := e.kubelets.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("parse the API server's metrics: %w", err)
	}
	counted := figures{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		resource := labels["resource"]
		// The API server and leader election read and write these independently of pods.
		if slices.Contains([]string{"", "leases", "endpoints", "endpointslices"}, resource) || labels["verb"] == "WATCH" {
			continue
		}
		if labels["subresource"] != "" {
			resource += "/" + labels["subresource"]
		}
		if code := labels["code"]; !strings.HasPrefix(code, "2") {
			resource += " (" + code + ")"
		}
		counted["requests "+labels["verb"]+" "+resource] += metric.GetCounter().GetValue()
	}
	return counted, nil
}
