// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"fmt"
	"testing"

	"github.com/sidecar-termination/operator/internal/resolve"
)

var sink resolve.Resolution

func BenchmarkResolve(b *testing.B) {
	for _, count := range []int{0, 1, 100} {
		b.Run(fmt.Sprintf("Policies%d", count), func(b *testing.B) {
			var policies []resolve.Policy
			for i := range count {
				policies = append(policies, namespaced(b, fmt.Sprintf("p%03d", i), i, spec(priority(int32(i%7)))))
			}
			pod := withEnv(newPod("main", "logs", "proxy"), terminate, "true")
			b.ReportAllocs()
			for b.Loop() {
				sink = resolve.Resolve(pod, policies, resolve.Options{Image: quickExit})
			}
		})
	}
}
