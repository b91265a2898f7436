// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"encoding/json"
	"testing"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// FuzzToAttempts reads requests that anybody may have made or changed. Only names that the operator gives count, each
// attempt has the count of every container of the pod that its request names, and attempts come in the order of their numbers.
func FuzzToAttempts(f *testing.F) {
	f.Add(`{}`, "")
	f.Add(`{"spec":{"containers":[{"name":"proxy"}]}}`, "sidecar-termination-4a1b-0")
	f.Add(`{"spec":{"containers":[{"name":"proxy","statusContext":{"containerID":"c","restartCount":3}}]},"status":{"completionTime":"2026-03-01T12:00:00Z","message":"m"}}`, "sidecar-termination-4a1b-7")
	f.Add(`{"status":{"containerRecreateStates":[{"name":"proxy","phase":"Failed","message":"kill failed"}]}}`, "sidecar-termination-4a1b-+1")
	f.Add(`{"spec":{"containers":null}}`, "sidecar-termination-4a1b-99999999999999999999")
	f.Fuzz(func(t *testing.T, text, name string) {
		var request kruise.ContainerRecreateRequest
		if json.Unmarshal([]byte(text), &request) != nil {
			return
		}
		request.Name = name
		second := *request.DeepCopy()
		second.Name = requestName(pod.UID, 1)
		attempts := toAttempts([]kruise.ContainerRecreateRequest{second, request}, pod)
		for i, attempt := range attempts {
			if attempt.Mode != v1alpha1.ModeCRR || attempt.For != v1alpha1.ModeCRR || attempt.Number < 0 {
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
			t.Errorf("%d attempts of a request with the name %q", len(attempts), name)
		}
		// A name that counts is one that the operator gives: two names for one attempt would be two requests for it.
		if number, ok := attemptNumber(name, pod.UID); ok && requestName(pod.UID, number) != name {
			t.Errorf("name %q is taken for that of attempt %d", name, number)
		}
	})
}
