// SPDX-License-Identifier: Apache-2.0

package podphase_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// patches accepts only patches of the status.
type patches struct {
	client.SubResourceWriter
	kind types.PatchType
	body []byte
	err  error
}

func (p *patches) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	p.kind = patch.Type()
	p.body, _ = patch.Data(object)
	return p.err
}

// statusOnly is a client that only writes the status.
type statusOnly struct {
	client.Client
	status *patches
}

func (s statusOnly) Status() client.SubResourceWriter { return s.status }

func newPod(record string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job-1", UID: "4a1b", ResourceVersion: "17"}}
	if record != "" {
		pod.Annotations = map[string]string{v1alpha1.AnnotationPodPhase: record}
	}
	return pod
}

func newTerminator(status *patches) *podphase.Terminator {
	return &podphase.Terminator{Client: statusOnly{status: status}, Clock: clocktesting.NewFakePassiveClock(now)}
}

func TestPhaseIsOnePatch(t *testing.T) {
	const want = `{"metadata":{"uid":"4a1b","resourceVersion":"17","labels":{"sidecartermination.dev/terminated-by":"CRR"},` +
		`"annotations":{"sidecartermination.dev/phase-guard":"Enabled",` +
		`"sidecartermination.dev/pod-phase":"{\"phase\":\"Succeeded\",\"mode\":\"CRR\",\"attempt\":2,\"writtenAt\":\"2026-03-01T12:00:00Z\"}"}},` +
		`"status":{"phase":"Succeeded","conditions":[{"type":"SidecarTerminated","status":"True","lastProbeTime":null,` +
		`"lastTransitionTime":"2026-03-01T12:00:00Z","reason":"Terminating","message":"main containers are done; the phase is their outcome"}]}}`
	var sent patches
	pod := newPod("")
	action := plan.Action{Mode: v1alpha1.ModePodPhase, For: v1alpha1.ModeCRR, Attempt: 2, Phase: corev1.PodSucceeded}
	changed, err := newTerminator(&sent).Terminate(t.Context(), pod, action)
	if err != nil || !changed {
		t.Fatalf("got changed %t, error %v", changed, err)
	}
	if diff := cmp.Diff(want, string(sent.body)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	if sent.kind != types.StrategicMergePatchType {
		t.Errorf("the patch has type %s; only a strategic merge keeps the other conditions", sent.kind)
	}
	if diff := cmp.Diff(newPod(""), pod); diff != "" {
		t.Errorf("the pod, which may be shared with a cache, was modified (-before +after):\n%s", diff)
	}
}

func TestServerErrorIsReturned(t *testing.T) {
	broken := errors.New("broken")
	changed, err := newTerminator(&patches{err: broken}).Terminate(t.Context(), newPod(""), plan.Action{Phase: corev1.PodFailed})
	if changed || !errors.Is(err, broken) {
		t.Errorf("got changed %t, error %v", changed, err)
	}
}

func TestObserve(t *testing.T) {
	for record, want := range map[string][]plan.Attempt{
		"":   nil,
		`{}`: nil,
		`{"phase":"Succeeded","mode":"CRR","attempt":1,"writtenAt":"2026-03-01T11:00:00Z"}`: {
			{Mode: v1alpha1.ModePodPhase, For: v1alpha1.ModeCRR, Number: 1, Started: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)},
		},
	} {
		got, err := newTerminator(nil).Observe(t.Context(), newPod(record))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("record %q: error %v, attempts (-want +got):\n%s", record, err, diff)
		}
	}
	for _, corrupt := range []string{
		`[]`, `{`, `{"mode":7}`, `{"mode":"Invented","attempt":1}`, `{"mode":"CRR","writtenAt":"noon"}`, `{"mode":"CRR"}` + strings.Repeat(" ", 5000),
	} {
		if _, err := newTerminator(nil).Observe(t.Context(), newPod(corrupt)); !errors.Is(err, terminator.ErrInvalidAnnotation) {
			t.Errorf("record %.40q: got error %v, want ErrInvalidAnnotation", corrupt, err)
		}
	}
}

func TestGuardIsRemovedOnce(t *testing.T) {
	var sent patches
	release := plan.Action{Mode: v1alpha1.ModePodPhase, For: v1alpha1.ModePodPhase, ReleasePhase: true}
	pod := newPod("")
	if changed, err := newTerminator(&sent).Terminate(t.Context(), pod, release); err != nil || changed || sent.body != nil {
		t.Fatalf("without a guard: changed %t, error %v, patch %s", changed, err, sent.body)
	}
	pod.Annotations = map[string]string{v1alpha1.AnnotationPhaseGuard: "Enabled"}
	changed, err := newTerminator(&sent).Terminate(t.Context(), pod, release)
	if err != nil || !changed {
		t.Fatalf("got changed %t, error %v", changed, err)
	}
	var body struct {
		Metadata struct {
			Annotations map[string]*string
		}
		Status any
	}
	if err := json.Unmarshal(sent.body, &body); err != nil {
		t.Fatal(err)
	}
	if value, named := body.Metadata.Annotations[v1alpha1.AnnotationPhaseGuard]; !named || value != nil || body.Status != nil {
		t.Errorf("the patch %s does not remove the annotation only", sent.body)
	}
}
