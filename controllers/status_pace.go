// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"

	"github.com/sidecar-termination/operator/internal/resolve"
)

// restsPerLook is how many times as long as a look at all of a policy's pods has taken the next one is put off, so that
// the status of a policy with very many pods takes a twentieth of one processor at most.
const restsPerLook = 20

// statusPace notes when the status of each policy may be looked at again.
type statusPace struct {
	// period is the shortest time between two writes of one status. Without one nothing waits.
	period time.Duration

	mu    sync.Mutex
	times map[resolve.PolicyRef]time.Time
}

// next returns when the policy may be looked at; the zero time when nothing speaks against now.
func (p *statusPace) next(ref resolve.PolicyRef) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.times[ref]
}

// looked notes a look at all of the policy's pods.
func (p *statusPace) looked(ref resolve.PolicyRef, begun, ended time.Time) {
	p.wait(ref, ended.Add(restsPerLook*ended.Sub(begun)))
}

// written notes a write of the policy's status.
func (p *statusPace) written(ref resolve.PolicyRef, now time.Time) {
	p.wait(ref, now.Add(p.period))
}

// wait puts the next look off until then, unless it is put off further already.
func (p *statusPace) wait(ref resolve.PolicyRef, until time.Time) {
	if p.period == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.times == nil {
		p.times = map[resolve.PolicyRef]time.Time{}
	}
	if until.After(p.times[ref]) {
		p.times[ref] = until
	}
}

func (p *statusPace) forget(ref resolve.PolicyRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.times, ref)
}
