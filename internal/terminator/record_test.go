// SPDX-License-Identifier: Apache-2.0

package terminator_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/internal/terminator"
)

// newPod returns a pod with two containers and an annotation named record.
func newPod(record string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"record": record}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}, {Name: "proxy"}}},
	}
}

func TestReadRecord(t *testing.T) {
	const longest = 3 * 1024 // 1 KiB for each container, and 1 KiB
	text := func(length int) string { return `"` + strings.Repeat("x", length-2) + `"` }
	for name, tc := range map[string]struct {
		annotation string
		want       string
		invalid    bool
	}{
		"absent":   {"", "unchanged", false},
		"present":  {`"attempt"`, "attempt", false},
		"longest":  {text(longest), strings.Repeat("x", longest-2), false},
		"too long": {text(longest + 1), "unchanged", true},
		"corrupt":  {`"attempt`, "unchanged", true},
	} {
		t.Run(name, func(t *testing.T) {
			got := "unchanged"
			err := terminator.ReadRecord(newPod(tc.annotation), "record", &got)
			if errors.Is(err, terminator.ErrInvalidAnnotation) != tc.invalid || (err != nil) != tc.invalid {
				t.Errorf("got error %v", err)
			}
			if got != tc.want {
				t.Errorf("got %d characters, want %d", len(got), len(tc.want))
			}
		})
	}
}
