// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHandoverCountsSuccessorActions(t *testing.T) {
	start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	second := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	begun := map[string]time.Time{"a": second(0), "b": second(11), "c": second(12)}
	for _, test := range []struct {
		name string
		at   map[string]time.Time
		by   map[string]string
		want HandoverRun
	}{
		{
			name: "the leader acts on after the signal, and the successor then",
			at:   map[string]time.Time{"a": second(1), "b": second(12), "c": second(17)},
			by:   map[string]string{"a": leaderName, "b": leaderName, "c": successorName},
			want: HandoverRun{LeaseAcquired: 5000, Gap: 7000, Longest: 5000},
		},
		{
			name: "the successor's first action is not that on the first pod",
			at:   map[string]time.Time{"a": second(1), "b": second(19), "c": second(16)},
			by:   map[string]string{"a": leaderName, "b": successorName, "c": successorName},
			want: HandoverRun{LeaseAcquired: 5000, Gap: 6000, Longest: 8000},
		},
		{
			name: "nobody acts after the signal",
			at:   map[string]time.Time{"a": second(1)}, by: map[string]string{"a": leaderName},
			want: HandoverRun{LeaseAcquired: 5000, Longest: 1000, Missed: 2},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := (&observations{at: test.at, by: test.by}).handover(begun, second(10), second(15), successorName)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("handover (-want +got):\n%s", diff)
			}
		})
	}
}
