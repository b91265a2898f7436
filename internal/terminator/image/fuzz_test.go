// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/image"
)

// FuzzObserve reads a record from any writer of the pod. It returns attempts or an error, and the same result each time.
// Attempts are sorted and unique, and have at least one container.
func FuzzObserve(f *testing.F) {
	for _, value := range []string{
		"", "null", "{}", "[]", "{", `"x"`, `{"proxy":null}`,
		`{"proxy":{"image":"proxy:v1","restartCount":0,"attempt":0,"swappedAt":"2026-03-01T12:00:00Z"}}`,
		`{"a":{"image":"a:v1","restartCount":-1,"attempt":1,"swappedAt":"2026-03-01T12:00:00Z"},"b":{"attempt":-9223372036854775808}}`,
		`{"proxy":{"restartCount":99999999999}}`, `{"proxy":{"swappedAt":"yesterday"}}`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationImageSwap: value}}}
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
