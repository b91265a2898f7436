// SPDX-License-Identifier: Apache-2.0

package podinput_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/podinput"
)

// jobs answers reads of Jobs with the error, or with a template of one container. The UID of a Job is its name.
type jobs struct {
	client.Reader
	err   error
	reads int
}

func (j *jobs) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	j.reads++
	if j.err != nil {
		return j.err
	}
	job := object.(*batchv1.Job)
	job.Name, job.UID = key.Name, types.UID(key.Name)
	job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}}
	return nil
}

// ownedBy makes an object the controller of the pod.
func ownedBy(apiVersion, kind, name, uid string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)}}
	}
}

func TestJobOf(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"without an owner":   {func(*corev1.Pod) {}, false},
		"of a Job":           {ownedBy("batch/v1", "Job", "import", "1"), true},
		"of a later version": {ownedBy("batch/v2", "Job", "import", "1"), true},
		"of a Volcano Job":   {ownedBy("batch.volcano.sh/v1alpha1", "Job", "import", "1"), false},
		"of a ReplicaSet":    {ownedBy("apps/v1", "ReplicaSet", "import", "1"), false},
		"without a controller": {func(p *corev1.Pod) {
			ownedBy("batch/v1", "Job", "import", "1")(p)
			p.OwnerReferences[0].Controller = nil
		}, false},
	} {
		if got := podinput.JobOf(podtest.New(tc.change)); (got != nil) != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestJobTemplates(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(podtest.Noon)
	server := &jobs{}
	templates := podinput.NewJobTemplates(server, clock)
	pod := podtest.New(ownedBy("batch/v1", "Job", "import", "import"))
	recreated := podtest.New(ownedBy("batch/v1", "Job", "import", "earlier"))
	elsewhere := podtest.New(ownedBy("batch/v1", "Job", "none", "import"), func(p *corev1.Pod) { p.Namespace = "other" })
	forbidden := apierrors.NewForbidden(batchv1.Resource("jobs"), "import", errors.New("no role"))
	for _, step := range []struct {
		name       string
		err        error
		pod        *corev1.Pod
		wait       time.Duration
		want       []string
		unreadable bool
		fails      bool
		reads      int
	}{
		{name: "lacks permission", err: forbidden, pod: pod, unreadable: true, reads: 1},
		{name: "is not asked for again at once", pod: pod, wait: 59 * time.Second, unreadable: true},
		{name: "is asked for again after a minute", pod: pod, wait: time.Second, want: []string{"main"}, reads: 1},
		{name: "another pod names the UID", err: apierrors.NewNotFound(batchv1.Resource("jobs"), "none"), pod: elsewhere, reads: 1},
		{name: "is remembered", pod: pod, wait: 59 * time.Minute, want: []string{"main"}},
		{name: "another Job has the name now", pod: recreated, reads: 1},
		{name: "is read again after an hour", err: errors.New("down"), pod: pod, wait: time.Minute, fails: true, reads: 1},
		{name: "an error is not remembered", pod: pod, want: []string{"main"}, reads: 1},
		{name: "no Job", pod: podtest.New()},
	} {
		clock.SetTime(clock.Now().Add(step.wait))
		server.err, server.reads = step.err, 0
		got, unreadable, err := templates.Containers(t.Context(), step.pod)
		if !slices.Equal(got, step.want) || unreadable != step.unreadable || (err != nil) != step.fails || server.reads != step.reads {
			t.Errorf("%s: got %v, unreadable %t, error %v after %d reads", step.name, got, unreadable, err, server.reads)
		}
	}
}

// The status of a policy reads the Jobs of all its pods in turn.
func TestMoreJobsThanTemplates(t *testing.T) {
	server := &jobs{}
	templates := podinput.NewJobTemplates(server, clocktesting.NewFakePassiveClock(podtest.Noon))
	const number = 4096 + 1
	for range 3 {
		for i := range number {
			name := fmt.Sprint("job-", i)
			if _, _, err := templates.Containers(t.Context(), podtest.New(ownedBy("batch/v1", "Job", name, name))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if server.reads > number+number/10 {
		t.Errorf("%d reads of %d Jobs in three passes", server.reads, number)
	}
}
