// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestReconcilesEndWithTheOperator(t *testing.T) {
	failed := errors.New("not written")
	for name, tc := range map[string]struct {
		stopBefore, stopMeanwhile bool
		wantCalls                 int
		want                      error
	}{
		"running":               {wantCalls: 1, want: failed},
		"stopped meanwhile":     {stopMeanwhile: true, wantCalls: 1},
		"stopped, still queued": {stopBefore: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			calls := 0
			r := untilStopped[int]{reconcile.TypedFunc[int](func(context.Context, int) (reconcile.Result, error) {
				if calls++; tc.stopMeanwhile {
					stop()
				}
				return reconcile.Result{}, failed
			})}
			if tc.stopBefore {
				stop()
			}
			if _, err := r.Reconcile(ctx, 1); !errors.Is(err, tc.want) || calls != tc.wantCalls {
				t.Errorf("got error %v after %d calls, want %v after %d", err, calls, tc.want, tc.wantCalls)
			}
		})
	}
}
