// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"encoding/json"
	"testing"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// FuzzToAttempts reads CRRs that anybody may have created or modified. Only the operator's names count. An attempt has a restart
// count for every container of the pod that its CRR names. Attempts are sorted by number.
func FuzzToAttempts(f *testing.F) {
	f.Add(`{}`, "")
	f.Add(`{"spec":{"containers":[{"name":"proxy"}]}}`, "sidecar-termination-4a1b-1")
	f.Add(`{"spec":{"containers":[{"name":"proxy","statusContext":{"containerID":"c","restartCount":3}}]},"status":{"completionTime":"2026-03-01T12:00:00Z","message":"m"}}`, "sidecar-termination-4a1b-8")
	f.Add(`{"status":{"containerRecreateStates":[{"name":"proxy","phase":"Failed","message":"kill failed"}]}}`, "sidecar-termination-4a1b-+1")
	f.Add(`{"spec":{"containers":null}}`, "sidecar-termination-4a1b-99999999999999999999")
	f.Fuzz(func(t *testing.T, text, name string) {
		var request kruise.ContainerRecreateRequest
		if json.Unmarshal([]byte(text), &request) != nil {
			return
		}
		request.Name = name
		second := *request.DeepCopy()
		second.Name = crrName(pod.UID, 2)
		attempts := toAttempts([]kruise.ContainerRecreateRequest{second, request}, pod)
		for i, attempt := range attempts {
			if attempt.Mode != v1alpha1.ModeCRR || attempt.Number < 0 {
				t.Errorf("attempt %+v", attempt)
			}
			if i > 0 && attempts[i-1].Number > attempt.Number {
				t.Errorf("attempts out of order: %+v", attempts)
			}
			for _, container := range request.Spec.Containers {
				_, counted := attempt.RestartCounts[container.Name]
				if known := terminator.ContainerNames(pod)[container.Name]; counted != known {
					t.Errorf("attempt %+v counts container %q: %t, the pod has it: %t", attempt, container.Name, counted, known)
				}
			}
		}
		if _, ok := attemptNumber(name, pod.UID); ok != (len(attempts) == 2) {
			t.Errorf("%d attempts of a CRR with the name %q", len(attempts), name)
		}
		// Only one name is valid for an attempt, or one attempt could have two CRRs.
		if number, ok := attemptNumber(name, pod.UID); ok && crrName(pod.UID, number) != name {
			t.Errorf("name %q is parsed as attempt %d", name, number)
		}
	})
}
