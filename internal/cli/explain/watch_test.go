// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestAWatchedJobIsOverOnceItsSidecarsAreEnded(t *testing.T) {
	attempts := []explain.Attempt{{}}
	for name, tc := range map[string]struct {
		status string
		pod    explain.Report
		want   bool
	}{
		"it runs":                                 {"running: 1 active, 0 succeeded, 0 failed", explain.Report{Stage: plan.StageTerminated}, false},
		"it is suspended":                         {"suspended", explain.Report{}, false},
		"it is complete":                          {"complete", explain.Report{Stage: plan.StageTerminated, Attempts: attempts}, true},
		"it is complete, and a sidecar is ended":  {"complete", explain.Report{Stage: plan.StageTerminating, Attempts: attempts}, false},
		"it is complete, and a sidecar is stuck":  {"complete", explain.Report{Stage: plan.StageStuck, Attempts: attempts}, true},
		"it has failed, and nobody ends anything": {"failed (DeadlineExceeded): late", explain.Report{Stage: plan.StageTerminating}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &result{Jobs: []jobLine{{Status: tc.status}}, Pods: []explain.Report{tc.pod}}
			if got := r.isOver(); got != tc.want {
				t.Errorf("over: %t", got)
			}
		})
	}
}
