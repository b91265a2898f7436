// SPDX-License-Identifier: Apache-2.0

package optionalkind_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sidecar-termination/operator/internal/optionalkind"
)

func TestIsDenial(t *testing.T) {
	const refusal = `admission webhook "mcontainerrecreaterequest.kb.io" denied the request: why`
	answer := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"none":                   {nil, false},
		"bad request":            {apierrors.NewBadRequest("no"), true},
		"forbidden":              {apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")), true},
		"invalid":                {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), true},
		"not found":              {apierrors.NewNotFound(schema.GroupResource{}, "x"), true},
		"conflict":               {apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("no")), false},
		"conflict of a webhook":  {apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "webhook-x", errors.New("it has been modified")), false},
		"webhook is down":        {apierrors.NewInternalError(errors.New(`failed calling webhook "x.example.com": refused`)), true},
		"webhook's own code":     {answer(http.StatusInternalServerError, refusal), true},
		"webhook says conflict":  {answer(http.StatusConflict, refusal), true},
		"webhook is busy":        {answer(http.StatusTooManyRequests, refusal), true},
		"webhook is unavailable": {answer(http.StatusServiceUnavailable, refusal), true},
		"webhook, wrapped":       {fmt.Errorf("mark pod: %w", answer(http.StatusTooManyRequests, refusal)), true},
		"server fails, plain":    {answer(http.StatusInternalServerError, "the server is broken"), false},
		"server is unavailable":  {answer(http.StatusServiceUnavailable, "apiserver is shutting down"), false},
		"server is busy, plain":  {answer(http.StatusTooManyRequests, "too many requests, please try again later"), false},
		"server is busy":         {apierrors.NewTooManyRequests("later", 1), false},
		"server fails":           {apierrors.NewInternalError(errors.New("etcd")), false},
		"proxy fails":            {errors.New(`webhook "x"`), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := optionalkind.IsDenial(tc.err); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
