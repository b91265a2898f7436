// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/image"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// patches is a client that accepts only patches of pods.
type patches struct {
	client.Client
	kind types.PatchType
	body []byte
	err  error
}

func (p *patches) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	p.kind = patch.Type()
	p.body, _ = patch.Data(object)
	return p.err
}

// newPod has a main container that is done and two sidecars. Sidecar tunnel has never started.
func newPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job-1", UID: "4a1b", ResourceVersion: "17"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", Image: "main:v1"}, {Name: "proxy", Image: "proxy:v1"}, {Name: "tunnel", Image: "tunnel:v1"},
		}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", ContainerID: "containerd://1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
			{Name: "proxy", ContainerID: "containerd://2", RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "tunnel", RestartCount: 0, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
		}},
	}
}

func withSwaps(record string) *corev1.Pod {
	pod := newPod()
	pod.Annotations = map[string]string{v1alpha1.AnnotationImageSwap: record}
	return pod
}

func newTerminator(c client.Client) *image.Terminator {
	return &image.Terminator{Client: c, Clock: clocktesting.NewFakePassiveClock(now)}
}

func TestSwapIsOnePatch(t *testing.T) {
	const (
		proxy       = `\"proxy\":{\"podUID\":\"4a1b\",\"image\":\"proxy:v1\",\"restartCount\":2,\"attempt\":2,\"swappedAt\":\"2026-03-01T12:00:00Z\"}`
		tunnel      = `\"tunnel\":{\"podUID\":\"4a1b\",\"image\":\"tunnel:v1\",\"restartCount\":-1,\"attempt\":2,\"swappedAt\":\"2026-03-01T12:00:00Z\"}`
		bothSwapped = `[{"name":"proxy","image":"quick-exit:v1"},{"name":"tunnel","image":"quick-exit:v2"}]`
	)
	for name, tc := range map[string]struct {
		pod        *corev1.Pod
		record     string
		containers string
	}{
		"two sidecars": {newPod(), proxy + `,` + tunnel, bothSwapped},
		"an earlier swap is kept and not repeated": {
			withSwaps(`{"proxy":{"podUID":"4a1b","image":"proxy:v1","restartCount":2,"attempt":1,"swappedAt":"2026-03-01T11:00:00Z"}}`),
			`\"proxy\":{\"podUID\":\"4a1b\",\"image\":\"proxy:v1\",\"restartCount\":2,\"attempt\":1,\"swappedAt\":\"2026-03-01T11:00:00Z\"},` + tunnel,
			`[{"name":"tunnel","image":"quick-exit:v2"}]`,
		},
		"another pod's record is replaced": {
			withSwaps(`{"proxy":{"podUID":"ffff","image":"other:v1","restartCount":1,"attempt":1,"swappedAt":"2026-03-01T11:00:00Z"},"main":{"image":"m"}}`),
			proxy + `,` + tunnel, bothSwapped,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sent patches
			before := tc.pod.DeepCopy()
			images := map[string]string{"proxy": "quick-exit:v1", "tunnel": "quick-exit:v2"}
			applied, err := newTerminator(&sent).Execute(t.Context(), tc.pod, plan.Write{Attempt: 2, Images: images})
			if err != nil || applied.Result != terminator.Changed {
				t.Fatalf("got %+v, error %v", applied, err)
			}
			want := `{"metadata":{"uid":"4a1b","resourceVersion":"17","annotations":{"sidecartermination.dev/image-swap":"{` + tc.record + `}"}},` +
				`"spec":{"containers":` + tc.containers + `}}`
			if diff := cmp.Diff(want, string(sent.body)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if sent.kind != types.StrategicMergePatchType {
				t.Errorf("the patch has type %s; only a strategic merge keeps the other containers", sent.kind)
			}
			if diff := cmp.Diff(before, tc.pod); diff != "" {
				t.Errorf("the pod, which may be shared with a cache, was modified (-before +after):\n%s", diff)
			}
		})
	}
}

// The operator can read every record that it writes.
func TestRecordLength(t *testing.T) {
	longest := newPod()
	longest.Spec.Containers[1].Name = strings.Repeat("n", 63)
	longest.Spec.Containers[1].Image = strings.Repeat("r", 255) + ":" + strings.Repeat("t", 128) + "@sha512:" + strings.Repeat("a", 128)
	full := newPod()
	rest := len(`{"proxy":{"podUID":"4a1b","image":"","restartCount":2,"attempt":1,"swappedAt":"2026-03-01T12:00:00Z"}}`)
	full.Spec.Containers[1].Image = strings.Repeat("r", terminator.RecordSize(3)-rest)
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string // the recorded image
	}{
		"longest record":         {full, full.Spec.Containers[1].Image},
		"the longest image name": {longest, longest.Spec.Containers[1].Image},
		"no image name":          {newPod(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.want == "" {
				tc.pod.Spec.Containers[1].Image = strings.Repeat("<", 10_000)
			}
			container := tc.pod.Spec.Containers[1].Name
			var sent patches
			write := plan.Write{Images: map[string]string{container: "quick-exit:v1"}}
			if applied, err := newTerminator(&sent).Execute(t.Context(), tc.pod, write); err != nil || applied.Result != terminator.Changed {
				t.Fatalf("got %+v, error %v", applied, err)
			}
			var body corev1.Pod
			if err := json.Unmarshal(sent.body, &body); err != nil {
				t.Fatal(err)
			}
			tc.pod.Annotations = body.Annotations
			if _, err := newTerminator(nil).Observe(t.Context(), tc.pod); err != nil {
				t.Fatal(err)
			}
			var swaps map[string]image.Swap
			if err := json.Unmarshal([]byte(body.Annotations[v1alpha1.AnnotationImageSwap]), &swaps); err != nil {
				t.Fatal(err)
			}
			if got := swaps[container].Image; got != tc.want {
				t.Errorf("the recorded image has %d characters, want %d", len(got), len(tc.want))
			}
		})
	}
}

func TestNoChange(t *testing.T) {
	broken := errors.New("broken")
	swapped := withSwaps(`{"proxy":{"podUID":"4a1b","image":"proxy:v1","restartCount":2,"attempt":1,"swappedAt":"2026-03-01T11:00:00Z"}}`)
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		server client.Client
		want   terminator.Result
		err    error
	}{
		"swapped before":      {swapped, nil, terminator.Unchanged, nil},
		"error of the server": {newPod(), &patches{err: broken}, "", broken},
	} {
		applied, err := newTerminator(tc.server).Execute(t.Context(), tc.pod, plan.Write{Attempt: 2, Images: map[string]string{"proxy": "quick-exit:v1"}})
		if applied.Result != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: got %+v, error %v", name, applied, err)
		}
	}
}

func TestObserve(t *testing.T) {
	eleven := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want []plan.Attempt
	}{
		"no record":       {newPod(), nil},
		"an empty record": {withSwaps(`{}`), nil},
		"swaps are grouped by attempt, oldest first": {
			withSwaps(`{
				"tunnel":{"podUID":"4a1b","image":"t","restartCount":-1,"attempt":2,"swappedAt":"2026-03-01T11:00:30Z"},
				"main":{"podUID":"4a1b","image":"l","restartCount":0,"attempt":1,"swappedAt":"2026-03-01T11:00:00Z"},
				"proxy":{"podUID":"4a1b","image":"p","restartCount":2,"attempt":1,"swappedAt":"2026-03-01T11:00:00Z"}}`),
			[]plan.Attempt{
				{Mode: v1alpha1.ModeImage, Number: 1, Started: eleven, RestartCounts: map[string]int32{"main": 0, "proxy": 2}},
				{Mode: v1alpha1.ModeImage, Number: 2, Started: eleven.Add(30 * time.Second), RestartCounts: map[string]int32{"tunnel": -1}},
			},
		},
		"swaps of unknown containers": {withSwaps(`{"other":{"podUID":"4a1b","attempt":1},"another":{"podUID":"4a1b","attempt":2}}`), nil},
		"swaps of another pod":        {withSwaps(`{"proxy":{"podUID":"ffff","attempt":1},"tunnel":{"attempt":2}}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newTerminator(nil).Observe(t.Context(), tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCorruptRecordStopsMode(t *testing.T) {
	for _, record := range []string{`null`, `[]`, `{`, `"x"`, `{"proxy":7}`, `{"proxy":{"swappedAt":"noon"}}`, `{}` + strings.Repeat(" ", 4*1024-1)} {
		t.Run(record[:min(len(record), 40)], func(t *testing.T) {
			pod := withSwaps(record)
			if _, err := newTerminator(nil).Observe(t.Context(), pod); !errors.Is(err, terminator.ErrInvalidAnnotation) {
				t.Errorf("Observe: got error %v, want ErrInvalidAnnotation", err)
			}
			write := plan.Write{Images: map[string]string{"proxy": "quick-exit:v1"}}
			if _, err := newTerminator(nil).Execute(t.Context(), pod, write); !errors.Is(err, terminator.ErrInvalidAnnotation) {
				t.Errorf("Execute: got error %v, want ErrInvalidAnnotation", err)
			}
		})
	}
}

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
