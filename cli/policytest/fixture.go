// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
)

// mainsEnd is when containers with an exit code end.
var mainsEnd = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

// maxSeconds bounds times in test files: sums of larger ones would overflow.
const maxSeconds = 365 * 24 * 60 * 60

// noNode and unknownNode are values of node that are not kinds of nodes.
const unknownNode, noNode = "Unknown", none

// workload is the pod of a manifest, with the policies that select it.
type workload struct {
	input explain.Pod
}

func (w workload) String() string {
	return fmt.Sprintf("%s/%s/%s", w.input.Kind, w.input.Pod.Namespace, w.input.Name)
}

// is reports whether the workload is called KIND/NAME or KIND/NAMESPACE/NAME.
func (w workload) is(name string) bool {
	return name == w.String() || name == w.input.Kind+"/"+w.input.Name
}

// fixture is the input of the operator's decision in one case.
type fixture struct {
	source  *source.Source
	pod     explain.Pod
	cluster explain.Cluster
	now     time.Time
}

// explain returns the report on the pod, which has the operator's decision.
func (f fixture) explain() explain.Report {
	return explain.Explain(f.pod, f.source.Settings.Decisions, f.cluster, f.now)
}

// fixture returns the input of one case. An error names the field.
func (s *suite) fixture(ctx context.Context, c testCase) (fixture, error) {
	from, err := s.source(c.Cluster)
	if err != nil {
		return fixture{}, err
	}
	of, err := s.workload(ctx, from, c.Workload)
	if err != nil {
		return fixture{}, fmt.Errorf("workload: %w", err)
	}
	kruise := boolOf(c.Cluster.OpenKruise, s.Cluster.OpenKruise, false)
	f := fixture{source: from, pod: of.input, cluster: explain.Cluster{Kruise: &kruise}}
	f.pod.Pod, f.pod.Template = f.pod.Pod.DeepCopy(), false
	if err := errors.Join(c.checkTimes(), c.checkContainers(f.pod.Pod)); err != nil {
		return f, err
	}
	if err := f.setNode(c.Node); err != nil {
		return f, err
	}
	f.setStatus(c, of.input.Template)
	f.pod.UnchangedSince = lastEnd(f.pod.Pod)
	f.now = f.pod.UnchangedSince.Add(seconds(c.ElapsedSeconds))
	if len(c.Attempts) > 0 {
		f.pod.Attempts = f.attempts(c.Attempts)
	}
	return f, nil
}

// source returns the source of the manifests with the operator's flags. Decisions about the same cluster share it.
func (s *suite) source(facts clusterFacts) (*source.Source, error) {
	var arguments []string
	enforce := boolOf(facts.EnforceDryRun, s.Cluster.EnforceDryRun, false)
	if boolOf(facts.PhaseGuard, s.Cluster.PhaseGuard, true) {
		arguments = append(arguments, "--stabilization-window=0s")
	}
	arguments = slices.Concat(arguments, s.Cluster.OperatorFlags, facts.OperatorFlags)
	key := fmt.Sprint(enforce, "\x00", strings.Join(arguments, "\x00"))
	if known := s.sources[key]; known != nil {
		return known, nil
	}
	flags := pflag.NewFlagSet(settings.Name, pflag.ContinueOnError)
	settings.BindDecisions(flags)
	err := flags.Parse(arguments)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	var made *source.Source
	if err == nil {
		made, err = s.manifests.Source(s.program, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster.operatorFlags: %w", err)
	}
	if enforce {
		made = made.WithPolicies(s.enforced())
	}
	s.sources[key] = made
	return made, nil
}

// enforced returns copies of the policies with enforcement DryRun that are enforced.
func (s *suite) enforced() []client.Object {
	var all []client.Object
	for _, manifest := range s.manifests.Objects {
		if policy, ok := source.PolicyOf(manifest.Object); !ok || policy.Spec.Enforcement != v1alpha1.EnforcementDryRun {
			continue
		}
		changed := manifest.Object.DeepCopyObject().(client.Object)
		policy, _ := source.PolicyOf(changed)
		policy.Spec.Enforcement = v1alpha1.EnforcementEnforce
		all = append(all, changed)
	}
	return all
}

// boolOf returns the value of a case, of its file, or the default.
func boolOf(ofCase, ofFile *bool, otherwise bool) bool {
	if value := cmp.Or(ofCase, ofFile); value != nil {
		return *value
	}
	return otherwise
}

// workload returns the workload of the name, or the only one.
func (s *suite) workload(ctx context.Context, from *source.Source, name string) (workload, error) {
	if _, known := s.workloads[from]; !known {
		s.workloads[from] = []workload{}
		for _, manifest := range s.manifests.Objects {
			input, ok, err := from.Manifest(ctx, manifest)
			if err != nil {
				return workload{}, err
			}
			if ok {
				s.workloads[from] = append(s.workloads[from], workload{input})
			}
		}
	}
	all := s.workloads[from]
	found := slices.DeleteFunc(slices.Clone(all), func(w workload) bool { return name != "" && !w.is(name) })
	if len(found) == 1 {
		return found[0], nil
	}
	names := "none"
	if len(all) > 0 {
		names = join(all)
	}
	if len(found) == 0 {
		return workload{}, fmt.Errorf("there is no %s in the manifests; Pods, Jobs and CronJobs there: %s", cmp.Or(name, "workload"), names)
	}
	return workload{}, fmt.Errorf("set it to one of %s", join(found))
}

// notes returns what the sources assume, each once.
func (s *suite) notes() []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s.sources)) {
		for _, note := range s.sources[key].Notes() {
			if !slices.Contains(all, note) {
				all = append(all, note)
			}
		}
	}
	return all
}

func join(all []workload) string {
	names := make([]string, 0, len(all))
	for _, w := range all {
		names = append(names, w.String())
	}
	return strings.Join(names, ", ")
}

func (c testCase) checkTimes() error {
	check := func(field string, value, most int64) error {
		if value < 0 || value > most {
			return fmt.Errorf("%s: is %d; it must be between 0 and %d", field, value, most)
		}
		return nil
	}
	if err := check("elapsedSeconds", c.ElapsedSeconds, maxSeconds); err != nil {
		return err
	}
	var all []error
	for i, a := range c.Attempts {
		field := fmt.Sprintf("attempts[%d].", i)
		all = append(all, check(field+"startedSeconds", a.StartedSeconds, c.ElapsedSeconds))
		if a.CompletedSeconds != nil {
			all = append(all, check(field+"completedSeconds", *a.CompletedSeconds, c.ElapsedSeconds))
		}
	}
	return errors.Join(all...)
}

// checkContainers checks the states of containers, and that the pod has every named container.
func (c testCase) checkContainers(pod *corev1.Pod) error {
	regular, all := namesOf(pod.Spec.Containers), namesOf(pod.Spec.InitContainers)
	all = append(all, regular...)
	var problems []error
	check := func(field, name string, known []string) {
		if !slices.Contains(known, name) {
			problems = append(problems, fmt.Errorf("%s: the pod has no such container; it has %s", field, strings.Join(known, ", ")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Containers)) {
		check("containers."+name, name, regular)
		if err := c.Containers[name].check(); err != nil {
			problems = append(problems, fmt.Errorf("containers.%s: %w", name, err))
		}
	}
	for i, a := range c.Attempts {
		field := fmt.Sprintf("attempts[%d].", i)
		for j, name := range a.Sidecars {
			check(fmt.Sprintf("%ssidecars[%d]", field, j), name, regular)
		}
		for _, name := range slices.Sorted(maps.Keys(a.Restarts)) {
			check(field+"restarts."+name, name, a.Sidecars)
		}
		if err := a.check(); err != nil {
			problems = append(problems, fmt.Errorf("%s%w", field, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Expect.Containers)) {
		check("expect.containers."+name, name, all)
	}
	if c.Expect.isEmpty() {
		problems = append(problems, errors.New("expect: names nothing to compare"))
	}
	return errors.Join(problems...)
}

func (s containerState) check() error {
	set := 0
	for _, isSet := range []bool{s.Running, s.ExitCode != nil, s.Waiting != ""} {
		if isSet {
			set++
		}
	}
	switch {
	case set != 1:
		return errors.New("set exactly one of running: true, exitCode and waiting")
	case s.Restarts < 0:
		return fmt.Errorf("restarts is %d; it must not be negative", s.Restarts)
	case s.Started != nil && s.Waiting == "":
		return errors.New("started is only for a waiting container")
	}
	return nil
}

func (a attempt) check() error {
	modes := []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase}
	switch {
	case !slices.Contains(modes, a.Mode):
		return fmt.Errorf("mode: is %q; it must be CRR, Image or PodPhase", a.Mode)
	case a.PartOf != "" && (a.Mode != v1alpha1.ModePodPhase || a.PartOf != v1alpha1.ModeCRR):
		return errors.New("partOf: only an attempt of mode PodPhase can be part of another one, of mode CRR")
	case a.Mode == v1alpha1.ModePodPhase && len(a.Sidecars) > 0:
		return errors.New("sidecars: mode PodPhase ends every container; remove the field")
	case a.Mode != v1alpha1.ModePodPhase && len(a.Sidecars) == 0:
		return fmt.Errorf("sidecars: name the containers that mode %s ends", a.Mode)
	}
	return nil
}

func namesOf(containers []corev1.Container) []string {
	names := make([]string, 0, len(containers))
	for i := range containers {
		names = append(names, containers[i].Name)
	}
	return names
}

// setNode puts the pod on a node of the kind. The node of a pod that has run stays if the kind is empty.
func (f *fixture) setNode(kind string) error {
	if kind == "" && f.pod.Node != plan.NodeUnknown {
		return nil
	}
	kind = cmp.Or(kind, string(plan.NodeReal))
	f.pod.Pod.Spec.NodeName = cmp.Or(f.pod.Pod.Spec.NodeName, "node")
	switch kind {
	case noNode:
		f.pod.Pod.Spec.NodeName, f.pod.Node = "", plan.NodeUnknown
	case unknownNode:
		f.pod.Node = plan.NodeUnknown
	case string(plan.NodeReal), string(plan.NodeDaemonless), string(plan.NodeVirtual):
		f.pod.Node = plan.NodeKind(kind)
	default:
		return fmt.Errorf("node: is %q; it must be Real, Daemonless, Virtual, Unknown or None", kind)
	}
	return nil
}

// setStatus sets the states of the containers. The status of a manifest stays if the case has no states.
func (f *fixture) setStatus(c testCase, isNew bool) {
	pod := f.pod.Pod
	if isNew || len(c.Containers) > 0 {
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		if pod.Spec.NodeName == "" {
			pod.Status.Phase = corev1.PodPending
		}
		for _, name := range namesOf(pod.Spec.Containers) {
			state, ok := c.Containers[name]
			if !ok && pod.Spec.NodeName == "" {
				continue
			}
			if !ok {
				state.Running = true
			}
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, state.status(name))
		}
	}
	pod.Status.Phase = cmp.Or(c.Phase, pod.Status.Phase)
}

func (s containerState) status(name string) corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: name, RestartCount: s.Restarts}
	started := s.Restarts > 0
	begin := metav1.NewTime(mainsEnd.Add(-time.Minute))
	switch {
	case s.Waiting != "":
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: s.Waiting}
		if s.Started != nil {
			started = *s.Started
		}
	case s.ExitCode != nil:
		status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: *s.ExitCode, StartedAt: begin, FinishedAt: metav1.NewTime(mainsEnd)}
		started = true
	default:
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: begin}
		started = true
	}
	if started {
		status.ContainerID = "test://" + name
	}
	return status
}

// lastEnd returns when the last container ended, or mainsEnd.
func lastEnd(pod *corev1.Pod) time.Time {
	var last time.Time
	for _, status := range pod.Status.ContainerStatuses {
		if end := status.State.Terminated; end != nil && end.FinishedAt.After(last) {
			last = end.FinishedAt.Time
		}
	}
	if last.IsZero() {
		return mainsEnd
	}
	return last
}

// attempts returns the attempts with the numbers that the operator gives them.
func (f *fixture) attempts(all []attempt) []plan.Attempt {
	var attempts []plan.Attempt
	numbers := map[v1alpha1.Mode]int{}
	for _, a := range all {
		made := plan.Attempt{Mode: a.Mode, For: cmp.Or(a.PartOf, a.Mode), Number: numbers[a.Mode], Started: f.pod.UnchangedSince.Add(seconds(a.StartedSeconds))}
		numbers[a.Mode]++
		if a.CompletedSeconds != nil {
			made.Finished = f.pod.UnchangedSince.Add(seconds(*a.CompletedSeconds))
		}
		for _, name := range a.Sidecars {
			if made.RestartCounts == nil {
				made.RestartCounts = map[string]int32{}
			}
			made.RestartCounts[name] = f.restarts(a, name)
		}
		attempts = append(attempts, made)
	}
	return attempts
}

// restarts returns the restart count of a sidecar when the attempt began.
func (f *fixture) restarts(a attempt, name string) int32 {
	if count, ok := a.Restarts[name]; ok {
		return count
	}
	for _, status := range f.pod.Pod.Status.ContainerStatuses {
		if status.Name == name {
			return status.RestartCount
		}
	}
	return 0
}

func seconds(count int64) time.Duration { return time.Duration(count) * time.Second }
