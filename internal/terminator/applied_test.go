// SPDX-License-Identifier: Apache-2.0

package terminator_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/terminator"
)

func TestJudge(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	cause := errors.New("because")
	byWebhook := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Message: `admission webhook "guard.example" denied the request: no`,
	}}
	// What counts as a denial is tested with optionalkind.IsDenial.
	for name, tc := range map[string]struct {
		err  error
		want terminator.Result // empty for an error
	}{
		"it is forbidden":         {apierrors.NewForbidden(pods, "job-1", cause), terminator.Denied},
		"a webhook answers 404":   {byWebhook, terminator.Denied},
		"OpenKruise denies a CRR": {fmt.Errorf("CRR %w: %w", terminator.ErrDenied, cause), terminator.Denied},
		"the pod has changed":     {apierrors.NewConflict(pods, "job-1", cause), terminator.Stale},
		"the pod has gone":        {apierrors.NewNotFound(pods, "webhook-1"), terminator.Stale},
		"the server is broken":    {apierrors.NewInternalError(cause), ""},
	} {
		t.Run(name, func(t *testing.T) {
			written := fmt.Errorf("swap images of pod: %w", tc.err)
			applied, err := terminator.Judge(v1alpha1.ModeImage, false, written)
			if applied.Result != tc.want || (err == nil) != (tc.want != "") || tc.want != "" && !errors.Is(applied.Answer, tc.err) {
				t.Errorf("got %+v, error %v", applied, err)
			}
		})
	}
	for changed, want := range map[bool]terminator.Result{true: terminator.Changed, false: terminator.Unchanged} {
		if applied, err := terminator.Judge(v1alpha1.ModeImage, changed, nil); applied.Result != want || err != nil {
			t.Errorf("changed %t: got %+v, error %v", changed, applied, err)
		}
	}
}
