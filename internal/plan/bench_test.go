// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/sidecar-termination/operator/internal/plan"
)

var sink plan.Decision

func BenchmarkNext(b *testing.B) {
	benchmarks := map[string]plan.Snapshot{
		"MainRuns": observed(newPod(never, running("main"), running("proxy")), oneProxy()),
		"Acts":     observed(finishedMain(never), oneProxy()),
		"Waits":    observed(finishedMain(never), oneProxy(), attempted(phaseWrite(0, crr), crrAttempt(0, "proxy"))),
		"Stuck":    observed(finishedMain(never), oneProxy(noImage, respect), withoutKruise),
		"Ended":    observed(finishedMain(never, exited("proxy", 0)), oneProxy()),
	}
	for _, name := range []string{"MainRuns", "Acts", "Waits", "Stuck", "Ended"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			s, now := benchmarks[name], done.Add(time.Second)
			for b.Loop() {
				sink = plan.Next(s, now)
			}
		})
	}
}
