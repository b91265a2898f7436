// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator"
)

var pod = &corev1.Pod{
	ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job-1", UID: "4a1b"},
	Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main"}, {Name: "proxy"}},
	},
}

// stopped is the operator's clock.
var stopped = clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// server is a client that creates and deletes CRRs as with OpenKruise's webhook.
type server struct {
	client.Client
	uid     string // of the pod that the webhook finds by name
	err     error
	created *kruise.ContainerRecreateRequest
	deleted []string
	// undeletable is the error of deletions; if nil, they return NotFound.
	undeletable error
	// existing is the CRR that has the name.
	existing *kruise.ContainerRecreateRequest
	listErr  error
}

func (s *server) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	given := (&client.ListOptions{}).ApplyOptions(options)
	if s.existing != nil && given.Namespace == s.existing.Namespace && given.FieldSelector.String() == "metadata.name="+s.existing.Name {
		list.(*kruise.ContainerRecreateRequestList).Items = []kruise.ContainerRecreateRequest{*s.existing}
	}
	return s.listErr
}

func (s *server) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if s.err != nil {
		return s.err
	}
	s.created = object.DeepCopyObject().(*kruise.ContainerRecreateRequest)
	if s.uid != "" {
		object.GetLabels()[kruise.ContainerRecreateRequestPodUIDKey] = s.uid
	}
	object.SetUID("c0de")
	return nil
}

func (s *server) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	given := (&client.DeleteOptions{}).ApplyOptions(options)
	s.deleted = append(s.deleted, object.GetNamespace()+"/"+object.GetName()+" with uid "+string(*given.Preconditions.UID))
	if s.undeletable != nil {
		return s.undeletable
	}
	return apierrors.NewNotFound(schema.GroupResource{}, object.GetName())
}

// TestMain fails when a test leaves a goroutine running.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestCreate(t *testing.T) {
	s := &server{uid: "4a1b"}
	action := plan.Write{Attempt: 4, Containers: []string{"logger", "proxy"}, Timeout: 40 * time.Second, MainRestarts: map[string]int32{"main": 3}}
	changed, err := (&Terminator{Client: s, Clock: stopped}).create(t.Context(), pod, action)
	if err != nil || !changed {
		t.Fatalf("got changed %t, error %v", changed, err)
	}
	want := &kruise.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "batch",
			Name:            "sidecar-termination-4a1b-4",
			Labels:          map[string]string{"app.kubernetes.io/managed-by": settings.Name},
			Annotations:     map[string]string{"sidecartermination.dev/requested-at": "2026-03-01T12:00:00Z", "sidecartermination.dev/main-restarts": `{"main":3}`},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "job-1", UID: "4a1b"}},
		},
		Spec: kruise.ContainerRecreateRequestSpec{
			PodName:                 "job-1",
			Containers:              []kruise.ContainerRecreateRequestContainer{{Name: "logger"}, {Name: "proxy"}},
			Strategy:                &kruise.ContainerRecreateRequestStrategy{FailurePolicy: "Ignore", ForceRecreate: true},
			ActiveDeadlineSeconds:   ptr.To[int64](40),
			TTLSecondsAfterFinished: ptr.To[int32](1800),
		},
	}
	if diff := cmp.Diff(want, s.created); diff != "" {
		t.Errorf("CRR (-want +got):\n%s", diff)
	}
	if len(s.deleted) > 0 {
		t.Errorf("deleted %v", s.deleted)
	}
}

func TestShortDeadlineIsExtended(t *testing.T) {
	if got := *newCRR(pod, plan.Write{Timeout: time.Second}, stopped.Now()).Spec.ActiveDeadlineSeconds; got != 3 {
		t.Errorf("got %d seconds", got)
	}
}

func TestCRRIsKeptIfContainersMayRestart(t *testing.T) {
	onFailure, never := corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever
	for name, tc := range map[string]struct {
		pod       corev1.RestartPolicy
		container *corev1.ContainerRestartPolicy
		kept      bool
	}{
		"Never":                                 {corev1.RestartPolicyNever, nil, false},
		"OnFailure":                             {corev1.RestartPolicyOnFailure, nil, true},
		"Never, and a container's OnFailure":    {corev1.RestartPolicyNever, &onFailure, true},
		"Never, and a container's, maybe rules": {corev1.RestartPolicyNever, &never, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := pod.DeepCopy()
			pod.Spec.RestartPolicy = tc.pod
			pod.Spec.Containers = []corev1.Container{{Name: "main"}, {Name: "proxy", RestartPolicy: tc.container}}
			if ttl := newCRR(pod, plan.Write{}, stopped.Now()).Spec.TTLSecondsAfterFinished; tc.kept != (ttl == nil) {
				t.Errorf("the CRR is deleted %v seconds after its end", ttl)
			}
		})
	}
}

func TestCreateErrors(t *testing.T) {
	webhook, down, broken := apierrors.NewBadRequest("why"), errors.New("connection refused"), errors.New("broken")
	taken := apierrors.NewAlreadyExists(resourceOfCRRs, "sidecar-termination-4a1b-1")
	replaced := apierrors.NewConflict(resourceOfCRRs, "sidecar-termination-4a1b-1", errors.New("precondition failed"))
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	own := func(change func(*kruise.ContainerRecreateRequest)) *kruise.ContainerRecreateRequest {
		request := newCRR(pod, plan.Write{Attempt: 1}, stopped.Now())
		change(request)
		return request
	}
	const superseded, created = "batch/sidecar-termination-4a1b-1 with uid aa", "batch/sidecar-termination-4a1b-1 with uid c0de"
	for name, tc := range map[string]struct {
		server     server
		supersedes []plan.Attempt
		deleted    []string
		want       func(error) bool
	}{
		"denied":    {server: server{err: webhook}, want: func(err error) bool { return errors.Is(err, terminator.ErrDenied) && errors.Is(err, webhook) }},
		"no answer": {server: server{err: down}, want: func(err error) bool { return !errors.Is(err, terminator.ErrDenied) && errors.Is(err, down) }},
		"taken by the operator's own CRR": {
			server: server{err: taken, existing: own(func(*kruise.ContainerRecreateRequest) {})}, want: is(nil),
		},
		"taken, without the label": {
			server: server{err: taken, existing: own(func(r *kruise.ContainerRecreateRequest) { r.Labels = nil })}, want: isDenied,
		},
		"taken, of another manager": {
			server: server{err: taken, existing: own(func(r *kruise.ContainerRecreateRequest) { r.Labels[optionalkind.LabelManagedBy] = "another" })}, want: isDenied,
		},
		"taken, without an owner": {
			server: server{err: taken, existing: own(func(r *kruise.ContainerRecreateRequest) { r.OwnerReferences = nil })}, want: isDenied,
		},
		"taken, of another pod": {
			server: server{err: taken, existing: own(func(r *kruise.ContainerRecreateRequest) { r.OwnerReferences[0].UID = "9c2d" })}, want: isDenied,
		},
		"taken by one that is deleted now": {server: server{err: taken}, want: apierrors.IsConflict},
		"taken by one that cannot be read": {server: server{err: taken, listErr: broken}, want: is(broken)},
		"superseded ones are deleted first": {
			server: server{err: broken}, supersedes: []plan.Attempt{{Number: 1, UID: "aa"}, {Number: 2, UID: "bb"}},
			deleted: []string{superseded, "batch/sidecar-termination-4a1b-2 with uid bb"}, want: is(broken),
		},
		"a superseded one has been replaced": {
			server: server{undeletable: replaced}, supersedes: []plan.Attempt{{Number: 1, UID: "aa"}}, deleted: []string{superseded}, want: is(replaced),
		},
		"another pod has the name":  {server: server{uid: "9c2d"}, deleted: []string{created}, want: is(terminator.ErrDenied)},
		"the webhook was passed by": {server: server{}, deleted: []string{created}, want: is(terminator.ErrDenied)},
	} {
		t.Run(name, func(t *testing.T) {
			s := &tc.server
			changed, err := (&Terminator{Client: s, Server: s, Clock: stopped}).create(t.Context(), pod, plan.Write{Attempt: 1, Supersedes: tc.supersedes})
			if changed || !tc.want(err) {
				t.Errorf("got changed %t, error %v", changed, err)
			}
			if diff := cmp.Diff(tc.deleted, s.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}

// The webhook's texts are of OpenKruise 1.8 and 1.9.
func TestStaleCacheOfOpenKruise(t *testing.T) {
	conflict := func(err error) bool {
		return apierrors.IsConflict(err) && !errors.Is(err, terminator.ErrDenied) && !optionalkind.IsDenial(err)
	}
	denied := func(err error) bool { return !apierrors.IsConflict(err) && errors.Is(err, terminator.ErrDenied) }
	for name, tc := range map[string]struct {
		text  string
		ended time.Duration
		want  func(error) bool
	}{
		"unknown pod":                {"no found Pod named job-1", time.Second, conflict},
		"pod without a node":         {"not allowed to recreate containers in a pending Pod", time.Second, conflict},
		"node's clock is ahead":      {"no found Pod named job-1", -59 * time.Second, conflict},
		"clock is far ahead":         {"no found Pod named job-1", -3 * time.Hour, denied},
		"no status of the container": {"not found proxy containerStatus in Pod Status", time.Second, conflict},
		"container has not started":  {"no containerID in proxy containerStatus, maybe the container has not been initialized", 59 * time.Second, conflict},
		"cache stays stale":          {"no containerID in proxy containerStatus, maybe the container has not been initialized", time.Minute, denied},
		"another denial":             {"container proxy not found in Pod", time.Second, denied},
	} {
		t.Run(name, func(t *testing.T) {
			ended := pod.DeepCopy()
			ended.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(stopped.Now().Add(-tc.ended))},
			}}}
			denial := apierrors.NewBadRequest(`admission webhook "mcontainerrecreaterequest.kb.io" denied the request: ` + tc.text)
			s := &server{err: denial}
			if _, err := (&Terminator{Client: s, Server: s, Clock: stopped}).create(t.Context(), ended, plan.Write{}); !tc.want(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func isDenied(err error) bool {
	return errors.Is(err, terminator.ErrDenied) && strings.Contains(err.Error(), "batch/sidecar-termination-4a1b-1 exists") && strings.HasSuffix(err.Error(), "; delete it")
}

func TestAttemptNumber(t *testing.T) {
	const uid = types.UID("4a1b")
	for name, want := range map[string]int{
		crrName(uid, 0):                -1,
		crrName(uid, 1):                1,
		crrName(uid, 12):               12,
		crrName(uid, 9999):             9999,
		crrName(uid, 10000):            -1,
		crrName("9c2d", 0):             -1,
		"sidecar-termination-4a1b-":    -1,
		"sidecar-termination-4a1b--1":  -1,
		"sidecar-termination-4a1b-two": -1,
		"sidecar-termination-4a1b-01":  -1,
		"sidecar-termination-4a1b":     -1,
		"other-4a1b-1":                 -1,
	} {
		t.Run(name, func(t *testing.T) {
			number, ok := attemptNumber(name, uid)
			if ok != (want >= 0) || ok && number != want {
				t.Errorf("got %d, %t", number, ok)
			}
		})
	}
}

func TestToAttempts(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	completed := metav1.NewTime(created.Add(time.Minute))
	for name, change := range map[string]func(r *kruise.ContainerRecreateRequest, want *plan.Attempt){
		"a CRR that Kruise has not seen": func(*kruise.ContainerRecreateRequest, *plan.Attempt) {},
		"the operator's time counts, not the API server's": func(r *kruise.ContainerRecreateRequest, want *plan.Attempt) {
			r.Annotations[annotationRequestedAt] = "2026-03-01T12:50:00Z"
			want.Started = created.Add(50 * time.Minute)
		},
		"a modified time in the future": func(r *kruise.ContainerRecreateRequest, _ *plan.Attempt) {
			r.Annotations[annotationRequestedAt] = "2099-03-01T12:00:00Z"
		},
		"restarts of main containers": func(r *kruise.ContainerRecreateRequest, want *plan.Attempt) {
			r.Annotations[annotationMainRestarts], want.MainRestarts = `{"proxy":7,"other":8}`, map[string]int32{"proxy": 7}
		},
		"restarts that are too long": func(r *kruise.ContainerRecreateRequest, _ *plan.Attempt) {
			r.Annotations[annotationMainRestarts] = `{"proxy":7}` + strings.Repeat(" ", 3000)
		},
		"restarts that are no JSON": func(r *kruise.ContainerRecreateRequest, _ *plan.Attempt) {
			r.Annotations[annotationMainRestarts] = "7"
		},
		"a removed time": func(r *kruise.ContainerRecreateRequest, _ *plan.Attempt) {
			r.Annotations[annotationRequestedAt] = "noon"
		},
		"restart counts of the webhook": func(r *kruise.ContainerRecreateRequest, want *plan.Attempt) {
			r.Spec.Containers[0].StatusContext = &kruise.ContainerRecreateRequestContainerContext{RestartCount: 4}
			want.RestartCounts["proxy"] = 4
		},
		"a CRR that Kruise has given up": func(r *kruise.ContainerRecreateRequest, want *plan.Attempt) {
			r.Status.CompletionTime, r.Status.Message = &completed, "daemon has not responded for a long time"
			want.Finished, want.Message = completed.Time, r.Status.Message
		},
		"a CRR that has stopped its containers": func(r *kruise.ContainerRecreateRequest, want *plan.Attempt) {
			r.Status.ContainerRecreateStates = []kruise.ContainerRecreateRequestContainerRecreateState{{Name: "proxy", IsKilled: true}}
			want.Stopped = true
		},
		"a CRR with unknown containers": func(r *kruise.ContainerRecreateRequest, _ *plan.Attempt) {
			r.Spec.Containers = append([]kruise.ContainerRecreateRequestContainer{{Name: "other"}}, r.Spec.Containers...)
		},
		"no message: the first failed container's message": func(r *kruise.ContainerRecreateRequest, want *plan.Attempt) {
			r.Status.ContainerRecreateStates = []kruise.ContainerRecreateRequestContainerRecreateState{
				{Phase: kruise.ContainerRecreateRequestSucceeded, Message: "fine"},
				{Phase: kruise.ContainerRecreateRequestFailed, Message: "cannot stop"},
				{Phase: kruise.ContainerRecreateRequestFailed, Message: "neither"},
			}
			want.Message = "cannot stop"
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := newCRR(pod, plan.Write{Containers: []string{"proxy"}}, created.Time)
			request.CreationTimestamp = created
			want := plan.Attempt{Mode: v1alpha1.ModeCRR, Number: 7, Started: created.Time, RestartCounts: map[string]int32{"proxy": 0}}
			change(request, &want)
			if diff := cmp.Diff(want, toAttempt(request, 7, map[string]bool{"proxy": true})); diff != "" {
				t.Errorf("attempt (-want +got):\n%s", diff)
			}
		})
	}
}

// Somebody who may create CRRs makes two with the largest numbers. The operator recognizes its next one.
func TestForgedNumbers(t *testing.T) {
	created := metav1.NewTime(stopped.Now())
	var requests []kruise.ContainerRecreateRequest
	for i, number := range []int{9998, 9999, 10000, 1<<31 - 1, 1} {
		request := newCRR(pod, plan.Write{Attempt: number, Containers: []string{"proxy"}}, created.Time)
		request.CreationTimestamp = metav1.NewTime(created.Add(time.Duration(i) * time.Second))
		requests = append(requests, *request)
	}
	var numbers []int
	for _, attempt := range toAttempts(requests, pod) {
		numbers = append(numbers, attempt.Number)
	}
	if diff := cmp.Diff([]int{9998, 9999, 1}, numbers); diff != "" {
		t.Errorf("attempts, the oldest first (-want +got):\n%s", diff)
	}
}

func TestNewestOfManyCRRsCount(t *testing.T) {
	var requests []kruise.ContainerRecreateRequest
	for i := range 1000 {
		requests = append(requests, *newCRR(pod, plan.Write{Attempt: 1000 - i, Containers: []string{"proxy"}}, time.Time{}))
	}
	attempts := toAttempts(requests, pod)
	if len(attempts) != maxAttempts || attempts[0].Number != 1001-maxAttempts || attempts[maxAttempts-1].Number != 1000 {
		t.Errorf("%d attempts, from %d to %d", len(attempts), attempts[0].Number, attempts[len(attempts)-1].Number)
	}
}

// lister answers every list with its CRRs or its error, and keeps the options.
type lister struct {
	client.Reader
	crrs    []kruise.ContainerRecreateRequest
	err     error
	options client.ListOptions
}

func (l *lister) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	l.options.ApplyOptions(options)
	list.(*kruise.ContainerRecreateRequestList).Items = l.crrs
	return l.err
}

func TestObserver(t *testing.T) {
	crr := newCRR(pod, plan.Write{Attempt: 3}, stopped.Now())
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		reader  *lister
		want    int
		wantErr error
	}{
		"served":     {reader: &lister{crrs: []kruise.ContainerRecreateRequest{*crr}}, want: 1},
		"not served": {reader: &lister{err: &meta.NoKindMatchError{}}},
		"failing":    {reader: &lister{err: broken}, wantErr: broken},
	} {
		t.Run(name, func(t *testing.T) {
			attempts, err := Observer{Reader: tc.reader}.Observe(t.Context(), pod)
			if len(attempts) != tc.want || !errors.Is(err, tc.wantErr) {
				t.Fatalf("got attempts %v, error %v", attempts, err)
			}
			if len(attempts) == 1 && attempts[0].Number != 3 {
				t.Errorf("got attempt %d, want 3", attempts[0].Number)
			}
			got := tc.reader.options.Namespace + " " + tc.reader.options.LabelSelector.String()
			if want := pod.Namespace + " app.kubernetes.io/managed-by=" + settings.Name; got != want {
				t.Errorf("got CRRs of %s, want %s", got, want)
			}
		})
	}
}

func TestObserveWithoutKruise(t *testing.T) {
	attempts, err := (&Terminator{Availability: &optionalkind.Availability{}}).Observe(t.Context(), pod)
	if attempts != nil || err != nil {
		t.Errorf("got attempts %v, error %v", attempts, err)
	}
}

func TestIsServed(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kruise.SchemeGroupVersion})
	if IsServed(mapper) {
		t.Error("served without the kind")
	}
	mapper.Add(kruise.SchemeGroupVersion.WithKind("ContainerRecreateRequest"), meta.RESTScopeNamespace)
	if !IsServed(mapper) {
		t.Error("not served with the kind")
	}
}

// FuzzToAttempts reads CRRs that anybody may have created or modified. Only the operator's names count. An attempt has a restart
// count for every container of the pod that its CRR names. Attempts are sorted by number.
func FuzzToAttempts(f *testing.F) {
	f.Add(`{}`, "")
	f.Add(`{"spec":{"containers":[{"name":"proxy"}]}}`, "sidecar-termination-4a1b-1")
	f.Add(`{"spec":{"containers":[{"name":"proxy","statusContext":{"containerID":"c","restartCount":3}}]},"status":{"completionTime":"2026-03-01T12:00:00Z","message":"m"}}`, "sidecar-termination-4a1b-8")
	f.Add(`{"status":{"containerRecreateStates":[{"name":"proxy","phase":"Failed","message":"kill failed"}]}}`, "sidecar-termination-4a1b-+1")
	f.Add(`{"spec":{"containers":null}}`, "sidecar-termination-4a1b-99999999999999999999")
	f.Fuzz(func(t *testing.T, text, name string) {
		var request kruise.ContainerRecreateRequest
		if json.Unmarshal([]byte(text), &request) != nil {
			return
		}
		request.Name = name
		second := *request.DeepCopy()
		second.Name = crrName(pod.UID, 2)
		attempts := toAttempts([]kruise.ContainerRecreateRequest{second, request}, pod)
		for i, attempt := range attempts {
			if attempt.Mode != v1alpha1.ModeCRR || attempt.Number < 0 {
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
			t.Errorf("%d attempts of a CRR with the name %q", len(attempts), name)
		}
		// Only one name is valid for an attempt, or one attempt could have two CRRs.
		if number, ok := attemptNumber(name, pod.UID); ok && crrName(pod.UID, number) != name {
			t.Errorf("name %q is parsed as attempt %d", name, number)
		}
	})
}
