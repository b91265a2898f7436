// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func TestReportPrintsMedians(t *testing.T) {
	r := newReport()
	for _, rate := range []float64{30, 10, 20} {
		r.add("burst of 500, CRR", "operator", figures{"pods/s": rate})
	}
	r.add("burst of 500, CRR", "bare", figures{"pods/s": 40})
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "\n\n")
	want := `LOAD               FIGURE  CONTENDER  MEDIAN  LEAST  GREATEST  RUNS
burst of 500, CRR  pods/s  bare       40.00   40.00  40.00     1
burst of 500, CRR  pods/s  operator   20.00   10.00  30.00     3
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// A termination counts once, when it is first seen, and only by the mode that is measured.
func TestRecordEnds(t *testing.T) {
	object := func(name string, change func(*metav1.PartialObjectMetadata)) watch.Event {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(o)
		return watch.Event{Type: watch.Modified, Object: o}
	}
	none := func(*metav1.PartialObjectMetadata) {}
	owner := func(o *metav1.PartialObjectMetadata) {
		o.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "a"}}
	}
	found := func(value string) func(*metav1.PartialObjectMetadata) {
		return func(o *metav1.PartialObjectMetadata) {
			o.Annotations = map[string]string{v1alpha1.AnnotationMainContainers: value}
		}
	}
	swap := func(o *metav1.PartialObjectMetadata) {
		o.Annotations = map[string]string{v1alpha1.AnnotationImageSwap: "{}"}
	}
	failed := watch.Event{Type: watch.Error, Object: &metav1.Status{Message: "too old"}}
	for _, test := range []struct {
		name   string
		mode   v1alpha1.Mode
		events []watch.Event
		fails  string
	}{
		{"a CRR is the pod's", v1alpha1.ModeCRR, []watch.Event{object("x", none), object("crr", owner)}, ""},
		{"a decided phase", v1alpha1.ModePodPhase, []watch.Event{object("b", found("Succeeded/u")), object("a", found("Decided/u"))}, ""},
		{"a swapped image", v1alpha1.ModeImage, []watch.Event{object("a", swap), object("a", swap)}, ""},
		{"another mode", v1alpha1.ModeImage, []watch.Event{object("a", found("Decided/u"))}, "0 of 1 pods"},
		{"an error", v1alpha1.ModeImage, []watch.Event{failed, object("a", swap)}, "too old"},
	} {
		t.Run(test.name, func(t *testing.T) {
			events := make(chan watch.Event, len(test.events))
			for _, event := range test.events {
				events <- event
			}
			close(events)
			at := map[string]time.Time{}
			err := recordEnds(events, test.mode, 1, at)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("got %v, want an error with %q", err, test.fails)
				}
			} else if err != nil || len(at) != 1 || at["a"].IsZero() {
				t.Errorf("got %v and %v, want the pod a", at, err)
			}
		})
	}
}
