// SPDX-License-Identifier: Apache-2.0

package podphase_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// patches accepts only patches of the status. The answer to each is a pod with phase Succeeded.
type patches struct {
	client.SubResourceWriter
	kind types.PatchType
	body []byte
	err  error
}

func (p *patches) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	p.kind = patch.Type()
	p.body, _ = patch.Data(object)
	object.(*corev1.Pod).Status.Phase = corev1.PodSucceeded
	return p.err
}

// statusOnly is a client that only writes the status.
type statusOnly struct {
	client.Client
	status *patches
}

func (s statusOnly) Status() client.SubResourceWriter { return s.status }

func newPod(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "batch", Name: "job-1", UID: "4a1b", ResourceVersion: "17", Annotations: annotations,
	}}
}

func newTerminator(status *patches) *podphase.Terminator {
	return &podphase.Terminator{Client: statusOnly{status: status}}
}

func TestMarkIsOnePatch(t *testing.T) {
	const (
		anyVersion  = `{"metadata":{"uid":"4a1b","labels":{"sidecartermination.dev/outcome":"MainContainers"},"annotations":{`
		thisVersion = `{"metadata":{"uid":"4a1b","resourceVersion":"17","labels":{"sidecartermination.dev/outcome":"MainContainers"},"annotations":{`
		ignored     = `"sidecartermination.dev/ignored-exit-codes":"logs,proxy/4a1b"`
		noEnd       = `"sidecartermination.dev/end":"",`
		noRecord    = `,"sidecartermination.dev/main-containers":""`
		condition   = `{"conditions":[{"type":"SidecarTerminated","status":"False",` +
			`"reason":"PodPhase","message":"the sidecars end by the phase of the pod"}]}`
	)
	marked := map[string]string{v1alpha1.AnnotationEnd: "PodPhase/4a1b"}
	for name, tc := range map[string]struct {
		annotations map[string]string
		mark        plan.Mark
		want        string
	}{
		"exit codes only":     {nil, plan.Mark{}, anyVersion + noEnd + ignored + noRecord + `}},"status":{}}`},
		"ends in advance":     {nil, plan.Mark{End: v1alpha1.EndPodPhase}, anyVersion + `"sidecartermination.dev/end":"PodPhase/4a1b",` + ignored + noRecord + `}},"status":` + condition + `}`},
		"ends as before":      {marked, plan.Mark{End: v1alpha1.EndPodPhase}, anyVersion + `"sidecartermination.dev/end":"PodPhase/4a1b",` + ignored + noRecord + `}},"status":` + condition + `}`},
		"stopped by CRR":      {nil, plan.Mark{End: v1alpha1.EndCRR}, anyVersion + `"sidecartermination.dev/end":"CRR/4a1b",` + ignored + noRecord + `}},"status":{}}`},
		"no longer ends":      {marked, plan.Mark{}, anyVersion + noEnd + ignored + noRecord + `}},"status":{}}`},
		"record":              {nil, plan.Mark{Record: v1alpha1.MainsSucceeded}, thisVersion + noEnd + ignored + `,"sidecartermination.dev/main-containers":"Succeeded/4a1b"}},"status":{}}`},
		"decision":            {nil, plan.Mark{Record: v1alpha1.MainsDecided}, thisVersion + noEnd + ignored + `,"sidecartermination.dev/main-containers":"Decided/4a1b"}},"status":{"phase":"Succeeded"}}`},
		"record that ends it": {nil, plan.Mark{Record: v1alpha1.MainsDecided, End: v1alpha1.EndPodPhase}, thisVersion + `"sidecartermination.dev/end":"PodPhase/4a1b",` + ignored + `,"sidecartermination.dev/main-containers":"Decided/4a1b"}},"status":{"phase":"Succeeded",` + condition[1:] + `}`},
		"phase Failed":        {marked, plan.Mark{End: v1alpha1.EndFailed}, thisVersion + `"sidecartermination.dev/end":"Failed/4a1b",` + ignored + noRecord + `}},"status":{"phase":"Failed",` + condition[1:] + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			var sent patches
			pod := newPod(tc.annotations)
			tc.mark.IgnoredExitCodes = []string{"logs", "proxy"}
			applied, err := newTerminator(&sent).Execute(t.Context(), pod, plan.Write{Mark: &tc.mark})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(sent.body)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if sent.kind != types.StrategicMergePatchType {
				t.Errorf("the patch has type %s; only a strategic merge keeps the other conditions", sent.kind)
			}
			if answer := applied.Pod; applied.Result != terminator.Changed || answer.Name != "job-1" || answer.Status.Phase != corev1.PodSucceeded {
				t.Errorf("got %s, pod %s with phase %q, want the server's answer", applied.Result, answer.Name, answer.Status.Phase)
			}
			if diff := cmp.Diff(newPod(tc.annotations), pod); diff != "" {
				t.Errorf("the pod, which may be shared with a cache, was modified (-before +after):\n%s", diff)
			}
		})
	}
}

func TestMarkWithoutIgnoredExitCodes(t *testing.T) {
	var sent patches
	if _, err := newTerminator(&sent).Execute(t.Context(), newPod(nil), plan.Write{Mark: &plan.Mark{}}); err != nil {
		t.Fatal(err)
	}
	var body corev1.Pod
	if err := json.Unmarshal(sent.body, &body); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{v1alpha1.AnnotationIgnoredExitCodes: "", v1alpha1.AnnotationEnd: "", v1alpha1.AnnotationMainContainers: ""}, body.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestServerErrorIsReturned(t *testing.T) {
	broken := errors.New("broken")
	applied, err := newTerminator(&patches{err: broken}).Execute(t.Context(), newPod(nil), plan.Write{Mark: &plan.Mark{}})
	if applied != (terminator.Applied{}) || !errors.Is(err, broken) {
		t.Errorf("got %+v, error %v", applied, err)
	}
}

// Without a resourceVersion, the API server answers with Invalid if another pod has the name.
func TestReplacedPodIsStale(t *testing.T) {
	invalid := func(path string) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "job-1", field.ErrorList{field.Invalid(field.NewPath(path), "4a1b", "field is immutable")})
	}
	for name, tc := range map[string]struct {
		err  error
		want terminator.Result
	}{
		"another pod":         {invalid("metadata.uid"), terminator.Stale},
		"another field":       {invalid("status.phase"), terminator.Denied},
		"error without cause": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid}}, terminator.Denied},
		"conflict":            {apierrors.NewConflict(schema.GroupResource{}, "job-1", nil), terminator.Stale},
	} {
		t.Run(name, func(t *testing.T) {
			applied, err := newTerminator(&patches{err: tc.err}).Execute(t.Context(), newPod(nil), plan.Write{Mark: &plan.Mark{}})
			if err != nil || applied.Result != tc.want {
				t.Errorf("got %+v, error %v, want %s", applied, err, tc.want)
			}
		})
	}
}

// Package plan derives the attempt from the pod: annotations of the pod alone are none.
func TestObserveReturnsNothing(t *testing.T) {
	pod := newPod(map[string]string{v1alpha1.AnnotationEnd: "PodPhase/4a1b"})
	if attempts, err := newTerminator(nil).Observe(t.Context(), pod); len(attempts) > 0 || err != nil {
		t.Errorf("got attempts %v, error %v", attempts, err)
	}
}
