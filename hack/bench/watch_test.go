// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const watchedNamespace = "watched"

// requestOf is OpenKruise's request for a pod.
func requestOf(pod string) *metav1.PartialObjectMetadata {
	request := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: watchedNamespace, Name: pod + "-request", OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: pod}},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "by-" + pod}},
	}}
	request.SetGroupVersionKind(requestKind)
	return request
}

// fakeWatch serves watches that the test can end.
type fakeWatch struct {
	client  *metadatafake.FakeMetadataClient
	watches chan *watch.FakeWatcher
}

func newFakeWatch(t *testing.T) fakeWatch {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := fakeWatch{metadatafake.NewSimpleMetadataClient(scheme), make(chan *watch.FakeWatcher, 10)}
	f.client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFake()
		f.watches <- w
		return true, w, nil
	})
	return f
}

// missed is a request that no watch tells of.
func (f fakeWatch) missed(t *testing.T, pod string) {
	t.Helper()
	gvr := requestKind.GroupVersion().WithResource("containerrecreaterequests")
	if err := f.client.Tracker().Create(gvr, requestOf(pod), watchedNamespace); err != nil {
		t.Fatal(err)
	}
}

func TestAWatchThatEndsIsResumed(t *testing.T) {
	tooOld := apierrors.NewResourceExpired("too old resource version")
	for _, test := range []struct {
		name string
		end  func(*watch.FakeWatcher)
		want Watched
	}{
		{
			name: "the API server closed it without a word", end: func(w *watch.FakeWatcher) { w.Stop() },
			want: Watched{Listed: 1, Interruptions: []string{errClosed.Error()}},
		},
		{
			name: "the API server said why", end: func(w *watch.FakeWatcher) { w.Error(&tooOld.ErrStatus) },
			want: Watched{Listed: 1, Interruptions: []string{"too old resource version"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeWatch(t)
			seen, err := watchBy(t.Context(), f.client, watchedNamespace, v1alpha1.ModeCRR, 3)
			if err != nil {
				t.Fatal(err)
			}
			defer seen.stop()
			begun := time.Now()
			first := <-f.watches
			first.Add(requestOf("a"))
			f.missed(t, "b")
			test.end(first)
			(<-f.watches).Add(requestOf("c"))
			if err := seen.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, seen.watched()); diff != "" {
				t.Errorf("watched (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(requests{"LIST containerrecreaterequests": 1}, seen.requests()); diff != "" {
				t.Errorf("the watch's own requests (-want +got):\n%s", diff)
			}
			if !seen.listed["b"] {
				t.Errorf("seen in a list: %v, want b", seen.listed)
			}
			if diff := cmp.Diff(map[string]string{"a": "by-a", "b": "by-b", "c": "by-c"}, seen.by); diff != "" {
				t.Errorf("who asked (-want +got):\n%s", diff)
			}
			if got := seen.latencies(map[string]time.Time{"a": begun, "b": begun, "c": begun}); len(got) != 2 {
				t.Errorf("%d latencies of a, b and c, want those of a and c", len(got))
			}
		})
	}
}

func TestAWatchIsResumedOnceTheAPIServerAnswersAgain(t *testing.T) {
	f := newFakeWatch(t)
	seen, err := watchBy(t.Context(), f.client, watchedNamespace, v1alpha1.ModeCRR, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer seen.stop()
	failures := 2
	f.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if failures == 0 {
			return false, nil, nil
		}
		failures--
		return true, nil, apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "list", requestKind.GroupVersion().WithResource("containerrecreaterequests").GroupResource(), "", "starting", 0, true)
	})
	f.missed(t, "a")
	(<-f.watches).Stop()
	if err := seen.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := seen.watched(); got.Listed != 1 || len(got.Interruptions) != 3 || !strings.Contains(got.Interruptions[1], "list what was missed") {
		t.Errorf("got %+v, want one pod in a list, and the end of the watch and two failures", got)
	}
}

func TestMissingPodsAreReportedWithReason(t *testing.T) {
	f := newFakeWatch(t)
	seen, err := watchBy(t.Context(), f.client, watchedNamespace, v1alpha1.ModeCRR, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer seen.stop()
	f.missed(t, "a")
	(<-f.watches).Stop()
	<-f.watches // By then the list has been read.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no matter"))
	want := fmt.Sprintf("2 pods expected, 1 terminated: %v; the watch was interrupted: %v", context.Canceled, errClosed)
	if err := seen.wait(ctx); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
