// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/image"
)

// FuzzObserve reads a record from any writer of the pod. It returns attempts or an error, and the same result each time.
// Attempts are sorted and unique, and have at least one container.
func FuzzObserve(f *testing.F) {
	for _, value := range []string{
		"", "null", "{}", "[]", "{", `"x"`, `{"proxy":null}`,
		`{"proxy":{"podUID":"4a1b","image":"proxy:v1","restartCount":0,"attempt":1,"swappedAt":"2026-03-01T12:00:00Z"}}`,
		`{"main":{"podUID":"4a1b","image":"a:v1","restartCount":-1,"attempt":2,"swappedAt":"2026-03-01T12:00:00Z"},"proxy":{"podUID":"4a1b","attempt":-9223372036854775808}}`,
		`{"proxy":{"podUID":"ffff"},"main":{"podUID":7}}`,
		`{"proxy":{"restartCount":99999999999}}`, `{"proxy":{"swappedAt":"yesterday"}}`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		pod := withSwaps(value)
		attempts, err := (&image.Terminator{}).Observe(t.Context(), pod)
		if err != nil && !errors.Is(err, terminator.ErrInvalidAnnotation) {
			t.Errorf("error %v", err)
		}
		if err != nil && len(attempts) > 0 {
			t.Errorf("attempts %+v with error %v", attempts, err)
		}
		for i, attempt := range attempts {
			if attempt.Mode != v1alpha1.ModeImage || len(attempt.RestartCounts) == 0 || i > 0 && attempts[i-1].Number >= attempt.Number {
				t.Errorf("attempts %+v", attempts)
			}
		}
		again, _ := (&image.Terminator{}).Observe(t.Context(), pod)
		if diff := cmp.Diff(attempts, again); diff != "" {
			t.Errorf("another result the second time:\n%s", diff)
		}
	})
}
