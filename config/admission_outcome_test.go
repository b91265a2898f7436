// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

const (
	outcomePolicy = "sidecar-termination-outcome"

	// Patches in which UID stands for the pod's UID.
	markPod   = "metadata: {labels: {sidecartermination.dev/outcome: MainContainers}, annotations: {sidecartermination.dev/ignored-exit-codes: proxy/UID}}"
	endPod    = "metadata: {annotations: {sidecartermination.dev/end: PodPhase/UID}}"
	recordPod = "metadata: {annotations: {sidecartermination.dev/main-containers: Succeeded/UID}}"
)

// podStarted is the time from which those of containers count.
var podStarted = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// podStatus parses a status such as "Running Ready=True main=0 proxy=running": a phase, conditions, and an exit code or a state of
// each container, and init:main of an init container. main=0@59 finished 59 seconds after podStarted. proxy=restarted is running again.
func podStatus(text string) corev1.PodStatus {
	status := corev1.PodStatus{}
	for field := range strings.FieldsSeq(text) {
		key, value, found := strings.Cut(field, "=")
		name, isInit := strings.CutPrefix(key, "init:")
		switch {
		case !found:
			status.Phase = corev1.PodPhase(key)
		case key == "reason":
			status.Reason = value
		case value == "True" || value == "False":
			status.Conditions = append(status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(key), Status: corev1.ConditionStatus(value)})
		case isInit:
			status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(name, value))
		default:
			status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(name, value))
		}
	}
	return status
}

func containerStatus(name, text string) corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: name}
	word, seconds, timed := strings.Cut(text, "@")
	var at metav1.Time
	if offset, err := time.ParseDuration(seconds + "s"); timed && err == nil {
		at = metav1.NewTime(podStarted.Add(offset))
	}
	exitCode, err := strconv.Atoi(word)
	switch {
	case err == nil:
		status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: int32(exitCode), FinishedAt: at}
	case word == "running" || word == "restarted":
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: at}
	case word != "none":
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: word}
	}
	if word == "restarted" {
		status.RestartCount = 1
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 7, FinishedAt: at}
	}
	return status
}

// kubeletPatch returns the patch with which a kubelet writes the status.
func kubeletPatch(uid types.UID, text string) client.Patch {
	status := podStatus(text)
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
	if err != nil {
		panic(err)
	}
	if status.ContainerStatuses == nil {
		content = bytes.Replace(content, []byte(`"status":{`), []byte(`"status":{"containerStatuses":null,`), 1)
	}
	return client.RawPatch(types.StrategicMergePatchType, content)
}

// podOutcome is what the policy has made of a pod, such as "Running, Succeeded": the phase and the record. Deviations from the
// mark of markedPod follow.
func podOutcome(pod *corev1.Pod) string {
	ofPod := func(value string) string { return strings.TrimSuffix(value, "/"+string(pod.UID)) }
	outcome := string(pod.Status.Phase)
	for _, item := range []struct{ text, value, usual string }{
		{", ", ofPod(pod.Annotations[v1alpha1.AnnotationMainContainers]), ""},
		{"; label=", pod.Labels[v1alpha1.LabelOutcome], v1alpha1.OutcomeMainContainers},
		{"; ignored=", ofPod(pod.Annotations[v1alpha1.AnnotationIgnoredExitCodes]), "proxy"},
		{"; end=", ofPod(pod.Annotations[v1alpha1.AnnotationEnd]), ""},
	} {
		if item.value != item.usual {
			outcome += item.text + item.value
		}
	}
	return outcome
}

// markedPod returns a pod with containers main and proxy that the operator has marked, for createMarked.
func markedPod(space string) *corev1.Pod {
	return podtest.New(podtest.InNamespace(space, ""), func(p *corev1.Pod) {
		p.GenerateName = "outcome-"
		p.Labels = map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}
		p.Annotations = map[string]string{v1alpha1.AnnotationIgnoredExitCodes: "proxy/UID"}
		p.Spec.AutomountServiceAccountToken, p.Status = new(bool), corev1.PodStatus{}
	})
}

// createMarked creates the pod and puts its UID into annotations with UID.
func createMarked(t *testing.T, c client.Client, pod *corev1.Pod) {
	t.Helper()
	create(t, c, pod)
	created := pod.DeepCopy()
	for key, value := range pod.Annotations {
		pod.Annotations[key] = strings.Replace(value, "UID", string(pod.UID), 1)
	}
	if err := c.Patch(t.Context(), pod, client.MergeFrom(created)); err != nil {
		t.Fatal(err)
	}
}

// applyAdmission installs a file of config/admission until the end of the test.
func applyAdmission(t *testing.T, c client.Client, file string) {
	t.Helper()
	for document := range strings.SplitSeq(string(readConfig(t, "admission/"+file)), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Delete(context.Background(), object) })
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.ForceOwnership, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
	}
}

// installOutcome installs the policy, waits until the server evaluates it, and returns a namespace for pods.
func installOutcome(t *testing.T) (client.Client, string) {
	t.Helper()
	c, _ := newClient(t)
	applyAdmission(t, c, "outcome.yaml")
	space := newNamespace(t)
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "default"}})
	probe := markedPod(space)
	createMarked(t, c, probe)
	testenv.Eventually(t, "the policy to be evaluated", func(ctx context.Context) error {
		if err := c.Status().Patch(ctx, probe, kubeletPatch(probe.UID, "Running main=running"), client.DryRunAll); err != nil {
			return err
		}
		if got := podOutcome(probe); got != "Running, Running" {
			return errors.New(got)
		}
		return nil
	})
	return c, space
}

// evaluationErrors returns the server's metrics of failed evaluations of the policy.
func evaluationErrors(t *testing.T) string {
	t.Helper()
	metrics, err := kubernetes.NewForConfigOrDie(server).RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var failed []string
	for line := range strings.Lines(string(metrics)) {
		checked := strings.HasPrefix(line, "apiserver_mutating_admission_policy_check_total{") && !strings.Contains(line, `error_type="no_error"`)
		matched := strings.HasPrefix(line, "apiserver_admission_match_condition_evaluation_errors_total{")
		if (checked || matched) && strings.Contains(line, `"`+outcomePolicy+`"`) {
			failed = append(failed, line)
		}
	}
	return strings.Join(failed, "")
}

func requireNoEvaluationErrors(t *testing.T) {
	t.Helper()
	before := evaluationErrors(t)
	t.Cleanup(func() {
		if diff := cmp.Diff(before, evaluationErrors(t)); diff != "" {
			t.Errorf("evaluations have failed:\n%s", diff)
		}
	})
}

// podWriter writes to a pod and returns the server's answer in it.
type podWriter func(ctx context.Context, c client.Client, pod *corev1.Pod) error

func kubelet(text string) podWriter {
	return func(ctx context.Context, c client.Client, pod *corev1.Pod) error {
		return c.Status().Patch(ctx, pod, kubeletPatch(pod.UID, text))
	}
}

// patchPodStatus patches pods/status with YAML in which UID stands for the pod's UID.
func patchPodStatus(kind types.PatchType, text string) podWriter {
	return func(ctx context.Context, c client.Client, pod *corev1.Pod) error {
		patch := patchOf(kind, strings.ReplaceAll(text, "UID", string(pod.UID)))
		if kind == types.ApplyPatchType {
			return c.Status().Patch(ctx, pod, patch, client.FieldOwner("provider"), client.ForceOwnership)
		}
		return c.Status().Patch(ctx, pod, patch)
	}
}

func mark(text string) podWriter { return patchPodStatus(types.StrategicMergePatchType, text) }

// patchPod patches pods, which the policy does not see.
func patchPod(text string) podWriter {
	return func(ctx context.Context, c client.Client, pod *corev1.Pod) error {
		return c.Patch(ctx, pod, patchOf(types.MergePatchType, strings.ReplaceAll(text, "UID", string(pod.UID))))
	}
}

// putStatus replaces the pod at pods/status, as virtual kubelets do.
func putStatus(text string, edit func(pod *corev1.Pod)) podWriter {
	return func(ctx context.Context, c client.Client, pod *corev1.Pod) error {
		pod.ResourceVersion, pod.Status = "", podStatus(text)
		edit(pod)
		return c.Status().Update(ctx, pod)
	}
}

func deletePod(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	if err := c.Delete(ctx, pod); err != nil {
		return err
	}
	return c.Get(ctx, client.ObjectKeyFromObject(pod), pod)
}

type outcomeStep struct {
	write podWriter
	want  string // podOutcome after the write
}

type steps = []outcomeStep

type outcomeScenario struct {
	pod   func(pod *corev1.Pod) // changes markedPod
	steps steps
}

func testScenarios(t *testing.T, scenarios map[string]outcomeScenario) {
	t.Helper()
	c, space := installOutcome(t)
	requireNoEvaluationErrors(t)
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := markedPod(space)
			if scenario.pod != nil {
				scenario.pod(pod)
			}
			createMarked(t, c, pod)
			for i, step := range scenario.steps {
				if err := step.write(t.Context(), c, pod); err != nil {
					t.Fatalf("write %d: %v", i+1, err)
				}
				if got := podOutcome(pod); got != step.want {
					t.Errorf("write %d: got %q, want %q", i+1, got, step.want)
				}
			}
		})
	}
}

func onFailure(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }

func withNative(pod *corev1.Pod) {
	pod.Spec.InitContainers = []corev1.Container{{Name: "native", Image: "native:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
}

func withRules(pod *corev1.Pod) {
	main := &pod.Spec.Containers[0]
	main.RestartPolicy, main.RestartPolicyRules = new(corev1.ContainerRestartPolicyNever), []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
}

// The cases of Jobs whose outcome a sidecar would decide. TestModelDecidesAsAdmissionPolicy of internal/plan has random ones, with deadlines,
// restarts and marks of other pods. Here the API server merges what kubelets write.
func TestOutcomeOfPods(t *testing.T) {
	running := outcomeStep{kubelet("Running main=running proxy=running"), "Running, Running"}
	mainDone := outcomeStep{kubelet("Running main=0 proxy=running"), "Running, Succeeded"}
	testScenarios(t, map[string]outcomeScenario{
		"sidecar fails before main": {steps: steps{running, {kubelet("Running main=running proxy=7"), "Running, Running"}, {kubelet("Failed main=0 proxy=7"), "Succeeded, Decided"}}},
		"sidecar fails after main":  {steps: steps{running, mainDone, {kubelet("Failed main=0 proxy=7"), "Succeeded, Decided"}}},
		"main fails":                {steps: steps{running, {kubelet("Failed main=3 proxy=0"), "Failed, Running"}}},
		"sidecar fails after main, OnFailure": {pod: onFailure, steps: steps{
			running, mainDone, {kubelet("Running main=0 proxy=7"), "Running, Succeeded"}, {kubelet("Running main=0 proxy=0"), "Succeeded, Decided"}}},
		"sidecar has no state":     {steps: steps{{kubelet("Running main=0 proxy=none"), "Running, Succeeded"}}},
		"main restarts, OnFailure": {pod: onFailure, steps: steps{{kubelet("Running main=3 proxy=running"), "Running, Running"}, running, mainDone}},
		"evicted after main": {steps: steps{mainDone, {kubelet("Running main=0 proxy=running DisruptionTarget=True"), "Running, Succeeded"},
			{kubelet("Failed main=0 proxy=137 DisruptionTarget=True reason=Evicted"), "Succeeded, Decided"}}},
		"evicted before main, main exits 0": {steps: steps{
			{kubelet("Running main=running proxy=running DisruptionTarget=True"), "Running, Running"}, {kubelet("Running main=0 proxy=running DisruptionTarget=True"), "Running, Running"},
			{kubelet("Failed main=0 proxy=0 DisruptionTarget=True reason=Evicted"), "Failed, Running"}}},
		"main exits 0 in write that drops reason": {steps: steps{{kubelet("Running main=running proxy=running reason=DeadlineExceeded"), "Running, Running"},
			{mark("status: {reason: null, containerStatuses: [{name: main, state: {terminated: {exitCode: 0}}}, {name: proxy, state: {running: {}}}]}"), "Running, Running"}}},
		"main exits 0 in write that drops conditions": {steps: steps{
			{kubelet("Running main=running proxy=running DisruptionTarget=True"), "Running, Running"}, {putStatus("Failed main=0 proxy=0", func(*corev1.Pod) {}), "Failed, Running"}}},
		"deleted after main":  {steps: steps{mainDone, {deletePod, "Running, Succeeded"}, {kubelet("Failed main=0 proxy=143"), "Succeeded, Decided"}}},
		"rejected after main": {steps: steps{mainDone, {kubelet("Failed reason=NodeAffinity"), "Succeeded, Decided"}}},
		"status of other container": {steps: steps{
			{kubelet("Running main=0 proxy=7 other=running"), "Running, Succeeded"}, {kubelet("Running main=0 proxy=7 other=3"), "Succeeded, Decided"}}},
		"later writes": {pod: onFailure, steps: steps{{kubelet("Running main=0 proxy=0"), "Succeeded, Decided"},
			{kubelet("Pending"), "Succeeded, Decided"}, {kubelet("Failed main=0 proxy=0"), "Succeeded, Decided"}, {kubelet("Failed main=0 proxy=0 reason=Evicted"), "Succeeded, Decided"}}},
		"Succeeded without record is final": {steps: steps{
			{kubelet("Succeeded main=running proxy=running"), "Succeeded, Running"}, {kubelet("Running main=running proxy=running"), "Succeeded, Running"},
			{kubelet("Failed main=3 proxy=running"), "Succeeded, Running"}}},
		"Failed is final": {steps: steps{{kubelet("Failed main=running proxy=running"), "Failed, Running"}, {kubelet("Running main=running proxy=running"), "Failed, Running"},
			{kubelet("Succeeded main=0 proxy=0"), "Failed, Succeeded"}, {patchPod(recordPod), "Failed, Succeeded"}, {kubelet("Pending main=0 proxy=0"), "Failed, Succeeded"}}},
		"list grows": {pod: func(pod *corev1.Pod) { pod.Annotations[v1alpha1.AnnotationIgnoredExitCodes] = "/UID" }, steps: steps{
			{kubelet("Running main=0 proxy=running"), "Running, Running; ignored="}, {mark(markPod), "Running, Succeeded"}}},
		"restart rules, recorded by operator": {pod: withRules, steps: steps{
			{kubelet("Running main=0 proxy=running"), "Running, Running"}, {mark(recordPod), "Running, Succeeded"},
			{kubelet("Failed main=0 proxy=7"), "Succeeded, Decided"}}},
		"native sidecar": {pod: withNative, steps: steps{
			{kubelet("Running main=0 proxy=7 init:native=running"), "Running, Succeeded"},
			{kubelet("Running main=0 proxy=7 init:native=143"), "Succeeded, Decided"}}},
	})
}

// The early end, with the annotation for mode PodPhase.
func TestOutcomeEnd(t *testing.T) {
	grace := func(seconds int64) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = &seconds }
	}
	mainDone := kubelet("Running main=0 proxy=running")
	requested := outcomeStep{mark(endPod), "Pending, Running; end=PodPhase"}
	testScenarios(t, map[string]outcomeScenario{
		"requested before main": {steps: steps{
			requested, {kubelet("Running main=running proxy=running"), "Running, Running; end=PodPhase"}, {mainDone, "Succeeded, Decided; end=PodPhase"},
			{mainDone, "Succeeded, Decided; end=PodPhase"}, {kubelet("Running main=0 proxy=running DisruptionTarget=True"), "Succeeded, Decided; end=PodPhase"},
			{kubelet("Failed main=0 proxy=137"), "Succeeded, Decided; end=PodPhase"}}},
		"requested after main": {steps: steps{{mainDone, "Running, Succeeded"}, {mark(endPod), "Succeeded, Decided; end=PodPhase"}}},
		"stopped by CRR": {steps: steps{{mainDone, "Running, Succeeded"}, {mark(strings.Replace(endPod, "PodPhase", "CRR", 1)), "Succeeded, Decided; end=CRR"},
			{kubelet("Failed main=0 proxy=7"), "Succeeded, Decided; end=CRR"}}},
		"stale PUT": {steps: steps{requested, {putStatus("Running main=0 proxy=running", func(pod *corev1.Pod) { pod.Annotations = nil }), "Succeeded, Decided; end=PodPhase"}}},
		"PUT without spec, grace period 3601": {pod: grace(3601), steps: steps{
			requested, {putStatus("Running main=0 proxy=running", func(pod *corev1.Pod) { pod.Spec = corev1.PodSpec{NodeName: "node"} }), "Running, Succeeded; end=PodPhase"}}},
		"evicted after record": {steps: steps{{mainDone, "Running, Succeeded"}, {kubelet("Running main=0 proxy=running DisruptionTarget=True"), "Running, Succeeded"},
			{mark(endPod), "Running, Succeeded; end=PodPhase"}, {kubelet("Failed main=0 proxy=137 DisruptionTarget=True"), "Succeeded, Decided; end=PodPhase"}}},
		"deleted after record": {steps: steps{{mainDone, "Running, Succeeded"}, {deletePod, "Running, Succeeded"}, {mark(endPod), "Running, Succeeded; end=PodPhase"}}},
	})
}

// Marks of the operator, and writers with stale or missing metadata.
func TestOutcomeMark(t *testing.T) {
	unmarked := func(pod *corev1.Pod) { pod.Labels, pod.Annotations = nil, nil }
	withoutSpec := func(pod *corev1.Pod) { pod.Spec, pod.UID = corev1.PodSpec{NodeName: "node"}, "" }
	mainDone := outcomeStep{kubelet("Running main=0 proxy=running"), "Running, Succeeded"}
	const statuses = "containerStatuses: [{name: main, state: {terminated: {exitCode: 0}}}, {name: proxy, state: {terminated: {exitCode: 7}}}]"
	testScenarios(t, map[string]outcomeScenario{
		"marked while main runs": {pod: unmarked, steps: steps{
			{kubelet("Running main=running proxy=running"), "Running; label=; ignored="}, {mark(markPod), "Running, Running"}, mainDone}},
		"marked after all":    {pod: unmarked, steps: steps{{kubelet("Running main=0 proxy=7"), "Running; label=; ignored="}, {mark(markPod), "Succeeded, Decided"}}},
		"marked after Failed": {pod: unmarked, steps: steps{{kubelet("Failed main=0 proxy=7"), "Failed; label=; ignored="}, {mark(markPod), "Failed, Succeeded"}}},
		"marked by PUT": {pod: unmarked, steps: steps{
			{putStatus("Running main=0 proxy=running", func(pod *corev1.Pod) {
				pod.Labels = map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}
			}), "Running, Running; ignored="}}},
		"restartPolicy Always": {pod: func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }, steps: steps{
			{kubelet("Failed main=0 proxy=7"), "Failed"}, {kubelet("Running main=0 proxy=7"), "Running"}}},

		"merge patch":           {steps: steps{{patchPodStatus(types.MergePatchType, "status: {phase: Failed, "+statuses+"}"), "Succeeded, Decided"}}},
		"strategic merge patch": {steps: steps{{patchPodStatus(types.StrategicMergePatchType, "status: {phase: Failed, "+statuses+"}"), "Succeeded, Decided"}}},
		"server-side apply": {steps: steps{{patchPodStatus(types.ApplyPatchType, "{apiVersion: v1, kind: Pod, status: {phase: Failed, "+statuses+"}}"), "Succeeded, Decided"},
			{patchPodStatus(types.ApplyPatchType, "{apiVersion: v1, kind: Pod, status: {phase: Failed}}"), "Succeeded, Decided"}}},
		"merge patch, mark null": {steps: steps{mainDone, {patchPodStatus(types.MergePatchType, "metadata: {labels: null, annotations: null}"), "Running, Succeeded"}}},
		"JSON patch, empty maps": {steps: steps{mainDone, {patchPodStatus(types.JSONPatchType,
			"[{op: replace, path: /metadata/labels, value: {}}, {op: replace, path: /metadata/annotations, value: {}}]"), "Running, Succeeded"}}},

		"PUT without metadata": {steps: steps{
			{putStatus("Running main=running proxy=running", unmarked), "Running, Running"}, {putStatus("Running main=0 proxy=running", unmarked), "Running, Succeeded"},
			{putStatus("Failed main=0 proxy=7", unmarked), "Succeeded, Decided"}, {putStatus("Running main=0 proxy=7", unmarked), "Succeeded, Decided"}}},
		"PUT with other metadata": {steps: steps{mainDone, {putStatus("Running main=0 proxy=running", func(pod *corev1.Pod) {
			pod.Labels, pod.Annotations = map[string]string{v1alpha1.LabelOutcome: "Other"}, map[string]string{"example.com/note": "stale"}
		}), "Running, Succeeded"}}},
		"PUT without spec and UID": {steps: steps{
			{putStatus("Running main=0 proxy=running", withoutSpec), "Running, Succeeded"}, {putStatus("Failed main=0 proxy=7", withoutSpec), "Succeeded, Decided"}}},
		"PUT without containers of the spec, main fails": {steps: steps{
			{putStatus("Failed proxy=0", func(pod *corev1.Pod) { pod.Spec.Containers = pod.Spec.Containers[1:] }), "Failed, Running"}}},
		"PUT without deletionTimestamp": {steps: steps{
			{deletePod, "Pending"}, {putStatus("Failed main=0 proxy=0", func(pod *corev1.Pod) { pod.DeletionTimestamp = nil }), "Failed, Running"}}},
		"PUT with foreign record": {steps: steps{
			mainDone, {putStatus("Running main=0 proxy=running", func(pod *corev1.Pod) { pod.Annotations[v1alpha1.AnnotationMainContainers] = "Running/f00d" }), "Running, Succeeded"}}},
		"record of copied pod": {pod: func(pod *corev1.Pod) { pod.Annotations[v1alpha1.AnnotationMainContainers] = "Decided/f00d" }, steps: steps{
			{kubelet("Running main=running proxy=running"), "Running, Running"}, {kubelet("Failed main=3 proxy=0"), "Failed, Running"}}},
		"record removed": {steps: steps{
			mainDone, {patchPod("metadata: {annotations: {sidecartermination.dev/main-containers: null}}"), "Running"}, {kubelet("Running main=0 proxy=running"), "Running, Succeeded"}}},
	})
}

// The policy changes the phase and the record of marked pods, and nothing of other pods.
func TestOutcomeChangesNothingElse(t *testing.T) {
	c, space := installOutcome(t)
	for _, marked := range []bool{true, false} {
		pod := markedPod(space)
		pod.Labels["app"], pod.Annotations["example.com/note"] = "job", "kept"
		if !marked {
			delete(pod.Labels, v1alpha1.LabelOutcome)
		}
		createMarked(t, c, pod)
		want := pod.DeepCopy()
		want.Status.Phase = corev1.PodFailed
		if marked {
			want.Status.Phase, want.Annotations[v1alpha1.AnnotationMainContainers] = corev1.PodSucceeded, "Decided/"+string(pod.UID)
		}
		if err := kubelet("Failed main=0 proxy=7")(t.Context(), c, pod); err != nil {
			t.Fatal(err)
		}
		want.Status.ContainerStatuses = podStatus("main=0 proxy=7").ContainerStatuses
		want.ResourceVersion, want.ManagedFields = pod.ResourceVersion, pod.ManagedFields
		if diff := cmp.Diff(want, pod); diff != "" {
			t.Errorf("marked: %t: (-want +got):\n%s", marked, diff)
		}
	}
}

// A client that writes protobuf can set times that are zero. No expression fails on them.
func TestOutcomeOfZeroTimes(t *testing.T) {
	c, space := installOutcome(t)
	requireNoEvaluationErrors(t)
	config := rest.CopyConfig(server)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	pod := markedPod(space)
	pod.Spec.ActiveDeadlineSeconds = new(int64(3600))
	createMarked(t, c, pod)
	pod.Status = podStatus("Failed main=0@10 proxy=7")
	pod.Status.StartTime = &metav1.Time{}
	got, err := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(space).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := podOutcome(got); got != "Succeeded, Decided" {
		t.Errorf("got %q", got)
	}
}

// The policy decides even the largest pods within CEL's limits of cost. An evaluation error blocks no write.
func TestOutcomeCost(t *testing.T) {
	c, space := installOutcome(t)
	for _, tc := range []struct {
		name                       string
		containers, ignored, bytes int
		other                      string // appended to the list
		extra                      int    // statuses of other containers
		want                       string
		fails                      bool
	}{
		{name: "all containers count", containers: 128, bytes: 9 << 10, want: "Decided"},
		{name: "half of the containers count", containers: 128, ignored: 64, bytes: 9 << 10, want: "Decided"},
		{name: "one container counts", containers: 128, ignored: 127, bytes: 9 << 10, want: "Decided"},
		{name: "list of 200,000 commas", containers: 128, ignored: 127, bytes: 9 << 10, other: strings.Repeat(",", 200_000), want: "Decided"},
		{name: "2,000 statuses", containers: 128, ignored: 64, extra: 2000, want: "Decided"},
		{name: "9,000 statuses", containers: 128, extra: 9000, fails: true},
		{name: "129 containers", containers: 129, ignored: 128},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod, before := markedPod(space), evaluationErrors(t)
			pod.Spec.Containers = nil
			var names, report []string
			for i := range tc.containers {
				name := fmt.Sprintf("c%03d-%s", i, strings.Repeat("x", 58))
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "main:1", Args: []string{strings.Repeat("x", tc.bytes)}})
				state := "=0@10"
				if i < tc.ignored {
					state = "=restarted@11"
				}
				names, report = append(names, name), append(report, name+state)
			}
			pod.Annotations[v1alpha1.AnnotationIgnoredExitCodes] = strings.Join(names[:tc.ignored], ",") + tc.other + "/UID"
			pod.Annotations[v1alpha1.AnnotationEnd] = v1alpha1.EndRestarted + "/UID"
			createMarked(t, c, pod)
			start := time.Now()
			status := "Running " + strings.Join(report, " ") + strings.Repeat(" other=0", tc.extra)
			if err := c.Status().Patch(t.Context(), pod, kubeletPatch(pod.UID, status)); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s to write the status of a pod of %d bytes", time.Since(start), pod.Size())
			record, _, _ := strings.Cut(pod.Annotations[v1alpha1.AnnotationMainContainers], "/")
			if failed := evaluationErrors(t) != before; record != tc.want || failed != tc.fails {
				t.Errorf("got record %q, evaluation error %t; want %q, %t", record, failed, tc.want, tc.fails)
			}
		})
	}
}
