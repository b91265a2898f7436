// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestWatchedJobIsFinished(t *testing.T) {
	attempts := []explain.Attempt{{}}
	for name, tc := range map[string]struct {
		status jobStatus
		pod    explain.Report
		want   bool
	}{
		"running":                      {jobRunning, explain.Report{Stage: plan.StageTerminated}, false},
		"suspended":                    {jobSuspended, explain.Report{}, false},
		"complete":                     {jobComplete, explain.Report{Stage: plan.StageTerminated, Attempts: attempts}, true},
		"complete with ending sidecar": {jobComplete, explain.Report{Stage: plan.StageTerminating, Attempts: attempts}, false},
		"complete with stuck sidecar":  {jobComplete, explain.Report{Stage: plan.StageStuck, Attempts: attempts}, true},
		"failed without an attempt":    {jobFailed, explain.Report{Stage: plan.StageTerminating}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &result{Jobs: []jobReport{{Status: tc.status}}, Pods: []explain.Report{tc.pod}}
			if got := r.isFinished(); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
