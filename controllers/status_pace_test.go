// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"github.com/sidecar-termination/operator/internal/resolve"
)

func TestTheNextLookAtAStatusWaits(t *testing.T) {
	mesh := resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: "mesh"}
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	for name, test := range map[string]struct {
		period time.Duration
		events func(*statusPace)
		want   time.Time
	}{
		"not before anything was done":    {time.Minute, func(*statusPace) {}, time.Time{}},
		"for the period after a write":    {time.Minute, func(p *statusPace) { p.written(mesh, noon) }, second(60)},
		"for 20 times as long as a look":  {time.Second, func(p *statusPace) { p.looked(mesh, noon, second(2)) }, second(42)},
		"for the longer of the two":       {time.Minute, func(p *statusPace) { p.looked(mesh, noon, second(2)); p.written(mesh, second(2)) }, second(62)},
		"for the longer, whichever first": {time.Minute, func(p *statusPace) { p.written(mesh, noon); p.looked(mesh, noon, second(10)) }, second(210)},
		"never without a period":          {0, func(p *statusPace) { p.written(mesh, noon); p.looked(mesh, noon, second(2)) }, time.Time{}},
		"not after the policy was forgotten": {
			time.Minute, func(p *statusPace) { p.written(mesh, noon); p.forget(mesh) }, time.Time{},
		},
		"not for another policy": {
			time.Minute, func(p *statusPace) { p.written(resolve.PolicyRef{Kind: resolve.KindCluster, Name: "mesh"}, noon) }, time.Time{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pace := &statusPace{period: test.period}
			test.events(pace)
			if got := pace.next(mesh); !got.Equal(test.want) {
				t.Errorf("next look at %s, want %s", got, test.want)
			}
		})
	}
}
