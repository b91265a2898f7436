// SPDX-License-Identifier: Apache-2.0

package podphase_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// FuzzObserve reads a record from any writer of the pod. It returns an attempt or an error, and no unknown mode.
func FuzzObserve(f *testing.F) {
	for _, value := range []string{
		"", "null", "{}", "[]", "{", `"x"`, `{"mode":"Auto"}`, `{"mode":"CRR"}`, `{"phase":"Running"}`,
		`{"phase":"Succeeded","mode":"PodPhase","attempt":2,"writtenAt":"2026-03-01T12:00:00Z"}`,
		`{"phase":"Succeeded","mode":"PodPhase","attempt":99999999999999999999}`, `{"mode":"PodPhase","writtenAt":0}`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationPodPhase: value}}}
		attempts, err := (&podphase.Terminator{}).Observe(t.Context(), pod)
		if err != nil && (!errors.Is(err, terminator.ErrInvalidAnnotation) || len(attempts) > 0) {
			t.Errorf("attempts %+v, error %v", attempts, err)
		}
		if len(attempts) > 1 {
			t.Errorf("%d attempts of one record", len(attempts))
		}
		for _, attempt := range attempts {
			if attempt.Mode != v1alpha1.ModePodPhase || attempt.For != v1alpha1.ModePodPhase && attempt.For != v1alpha1.ModeCRR {
				t.Errorf("attempt %+v", attempt)
			}
		}
	})
}
