// SPDX-License-Identifier: Apache-2.0

package optionalkind_test

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sidecar-termination/operator/internal/optionalkind"
)

func TestIsDenial(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"none":            {nil, false},
		"bad request":     {apierrors.NewBadRequest("no"), true},
		"forbidden":       {apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")), true},
		"invalid":         {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), true},
		"not found":       {apierrors.NewNotFound(schema.GroupResource{}, "x"), true},
		"conflict":        {apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("no")), false},
		"webhook is down": {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"server fails":    {apierrors.NewInternalError(errors.New("etcd")), false},
		"proxy fails":     {errors.New("webhook"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := optionalkind.IsDenial(tc.err); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
