// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestLabelsAndAnnotationsWithoutEffect(t *testing.T) {
	type pairs = map[string]string
	const sidecars, ignore = v1alpha1.AnnotationSidecars, v1alpha1.LabelIgnore
	for name, tc := range map[string]struct {
		labels, annotations, namespace pairs
		owner                          explain.Metadata
		want                           []string // MESSAGE -> HINT
	}{
		"right":       {pairs{ignore: "true", "team": "etl"}, pairs{sidecars: "proxy"}, pairs{ignore: "true"}, explain.Metadata{Labels: pairs{"team": "etl"}}, nil},
		"marks":       {pairs{v1alpha1.LabelOutcome: "MainContainers"}, pairs{v1alpha1.AnnotationEnd: "PodPhase/4a1b"}, nil, explain.Metadata{}, nil},
		"other names": {nil, pairs{sidecars: "proxy,other"}, nil, explain.Metadata{}, []string{"annotation sidecartermination.dev/sidecars names other, which is not in the pod -> correct the annotation"}},
		"misspelled name": {nil, pairs{sidecars: "porxy"}, nil, explain.Metadata{}, []string{
			"annotation sidecartermination.dev/sidecars names porxy (did you mean proxy?), which is not in the pod -> change porxy to proxy in the annotation"}},
		"misspelled key": {pairs{"sidecartermination.dev/ignored": "true"}, pairs{"sidecartermination.dev/sidecar": "proxy"}, nil, explain.Metadata{}, []string{
			"label sidecartermination.dev/ignored of the pod has no effect: did you mean sidecartermination.dev/ignore? -> correct the key",
			"annotation sidecartermination.dev/sidecar of the pod has no effect: did you mean sidecartermination.dev/sidecars? -> correct the key"}},
		"misspelled prefix": {nil, pairs{"sidecar-termination.dev/sidecars": "proxy"}, nil, explain.Metadata{}, []string{
			"annotation sidecar-termination.dev/sidecars of the pod has no effect: did you mean sidecartermination.dev/sidecars? -> correct the key"}},
		"other key with the prefix": {pairs{"sidecartermination.dev/tool": "airflow"}, nil, nil, explain.Metadata{}, nil},
		"value": {pairs{ignore: "yes"}, nil, pairs{ignore: ""}, explain.Metadata{}, []string{
			`label sidecartermination.dev/ignore of the pod has no effect: its value is yes -> set the value to "true"`,
			`label sidecartermination.dev/ignore of the namespace has no effect: its value is "" -> set the value to "true"`}},
		"label as an annotation and the reverse": {pairs{sidecars: "proxy"}, pairs{ignore: "true"}, nil, explain.Metadata{}, []string{
			"label sidecartermination.dev/sidecars of the pod has no effect: it is a key of annotations -> make it one of the annotations",
			"annotation sidecartermination.dev/ignore of the pod has no effect: it is a key of labels -> make it one of the labels"}},
		"of the Job": {nil, nil, nil, explain.Metadata{Labels: pairs{ignore: "true"}, Annotations: pairs{sidecars: "proxy"}}, []string{
			"sidecartermination.dev/sidecars of the Job has no effect: the operator reads the metadata of its pods -> move it to spec.template.metadata of the Job",
			"sidecartermination.dev/ignore of the Job has no effect: the operator reads the metadata of its pods -> move it to spec.template.metadata of the Job"}},
		"of the Job and its pods": {nil, pairs{sidecars: "proxy"}, nil, explain.Metadata{Annotations: pairs{sidecars: "proxy"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.live(time.Minute, 0)
			w.cluster.Offline = true
			w.Pod.Pod.Labels, w.Pod.Pod.Annotations, w.NamespaceLabels, w.Owner = tc.labels, tc.annotations, tc.namespace, tc.owner
			var got []string
			for _, f := range explain.Lint(explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings) {
				if f.Reason == v1alpha1.ReasonIneffectiveLabel || f.Reason == v1alpha1.ReasonContainerNotFound {
					got = append(got, fmt.Sprintf("%s -> %s", f.Message, f.Hint))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestManyMisspelledKeysHaveFewFindings(t *testing.T) {
	w := newFixture()
	w.Pod.Pod.Labels = map[string]string{}
	for i := range 26 * 26 {
		w.Pod.Pod.Labels[fmt.Sprintf("%s%c%c", v1alpha1.LabelIgnore, 'a'+i/26, 'a'+i%26)] = "true"
	}
	if found := explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings; len(found) > 10 {
		t.Errorf("%d findings", len(found))
	}
}

func TestNoSidecarNamesTheAnnotation(t *testing.T) {
	w := newFixture()
	w.live(time.Minute, 0)
	w.list("porxy")
	const want = "no policy or environment variable declares a sidecar in this pod; its annotation sidecartermination.dev/sidecars names none of its containers"
	if got := explain.Explain(w.Pod, w.operator, w.cluster, noon); got.Message != want || got.Stage != plan.StageIgnored {
		t.Errorf("got %s %q, want %q", got.Stage, got.Message, want)
	}
}
