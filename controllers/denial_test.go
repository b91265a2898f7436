// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

func TestDenialIn(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	cause := errors.New("because")
	byWebhook := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Message: `admission webhook "guard.example" denied the request: no`,
		}}
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                        {nil, false},
		"it is forbidden":                {apierrors.NewForbidden(pods, "job-1", cause), true},
		"it is invalid":                  {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "job-1", nil), true},
		"a webhook answers 400":          {apierrors.NewBadRequest("denied"), true},
		"a webhook answers 404":          {byWebhook(http.StatusNotFound), true},
		"a webhook answers 500":          {byWebhook(http.StatusInternalServerError), true},
		"a webhook does not answer":      {apierrors.NewInternalError(errors.New("failed calling webhook: connection refused")), true},
		"OpenKruise denies a CRR":        {fmt.Errorf("%w: %w", crr.ErrDenied, cause), true},
		"the pod has changed":            {apierrors.NewConflict(pods, "job-1", cause), false},
		"the pod has gone":               {apierrors.NewNotFound(pods, "job-1"), false},
		"the server is busy":             {apierrors.NewTooManyRequests("later", 1), false},
		"the server is broken":           {apierrors.NewInternalError(cause), false},
		"the answer times out":           {apierrors.NewTimeoutError("late", 1), false},
		"the connection has been closed": {cause, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.err
			if err != nil {
				err = &writeError{v1alpha1.ModeImage, fmt.Errorf("swap images of pod: %w", tc.err)}
			}
			if got := denialIn(err); (got != nil) != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
	if got := denialIn(apierrors.NewForbidden(pods, "job-1", cause)); got != nil {
		t.Errorf("an error without a write is a denial: %v", got)
	}
}

func TestDenialWait(t *testing.T) {
	for name, tc := range map[string]struct {
		decision plan.Decision
		after    time.Duration
		want     time.Duration
	}{
		"main containers run":              {waiting(), time.Hour, 0},
		"another mode is used":             {terminating(v1alpha1.ModeImage), time.Hour, denialRetry},
		"stuck, just after the mains' end": {stuck(), time.Millisecond, minDenialRetry},
		"stuck for a while":                {stuck(), 40 * time.Second, 40 * time.Second},
		"stuck for long":                   {stuck(), time.Hour, maxDenialRetry},
		"clocks differ":                    {stuck(), -time.Hour, denialRetry},
	} {
		t.Run(name, func(t *testing.T) {
			if got := denialWait(tc.decision, podtest.Noon.Add(tc.after)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestDeniedWritesAreKeptUntilOneSucceeds(t *testing.T) {
	st := newStatesTest(t)
	resolved := resolvedPodOf(podtest.New(podtest.MainDone), mesh)
	denied := func(decision plan.Decision, answers map[v1alpha1.Mode]string) plan.Decision {
		decision.Denied = answers
		return decision
	}
	both := map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no", v1alpha1.ModeImage: "never"}
	other := podtest.New(func(p *corev1.Pod) { p.UID = "0000" })
	for _, step := range []struct {
		name     string
		decision plan.Decision
		want     map[v1alpha1.Mode]string
		events   int
		stuck    float64
	}{
		{"two are denied", denied(stuck(), both), both, 1, 1},
		{"denied again", denied(stuck(), both), both, 0, 1},
		{"one is accepted", terminating(v1alpha1.ModePodPhase), map[v1alpha1.Mode]string{v1alpha1.ModeImage: "never"}, 1, 0},
		{"it is in progress", inProgress(v1alpha1.ModePodPhase), map[v1alpha1.Mode]string{v1alpha1.ModeImage: "never"}, 0, 0},
		{"the other is accepted too", terminating(v1alpha1.ModeImage), nil, 1, 0},
		{"a mark is denied", denied(waiting(), map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no"}), map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no"}, 0, 0},
		{"a mark is accepted", marking(""), nil, 0, 0},
	} {
		st.record(resolved, step.decision, nil)
		got, _ := st.writes(resolved.pod)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: denied (-want +got):\n%s", step.name, diff)
		}
		if got := st.events.take(); len(got) != step.events {
			t.Errorf("%s: events %q", step.name, got)
		}
		if got := testutil.ToFloat64(stuckPods); got != step.stuck {
			t.Errorf("%s: %v pods are stuck", step.name, got)
		}
		if got, _ := st.writes(other); got != nil {
			t.Errorf("%s: denials of another pod with the name: %v", step.name, got)
		}
	}
	if diff := cmp.Diff(map[v1alpha1.Mode]string{v1alpha1.ModePodPhase: "no", v1alpha1.ModeImage: "never"}, both); diff != "" {
		t.Errorf("the argument was changed (-before +after):\n%s", diff)
	}
}
