// SPDX-License-Identifier: Apache-2.0

package pulljob

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

var (
	namespaced = &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{UID: "4a1b", Namespace: "batch", Name: "mesh"}}
	ofCluster  = &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{UID: "5c2d", Name: "mesh"}}
	resource   = schema.GroupResource{Group: "apps.kruise.io", Resource: "imagepulljobs"}
)

// server is an API server that accepts jobs or returns an error.
type server struct {
	client.Client
	err      error
	created  *kruise.ImagePullJob
	existing []kruise.ImagePullJob
	listErr  error
	deleted  []string
}

func (s *server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*kruise.ImagePullJobList).Items = s.existing
	return s.listErr
}

func (s *server) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	s.created = object.(*kruise.ImagePullJob)
	return s.err
}

func (s *server) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(options)
	s.deleted = append(s.deleted, object.GetNamespace()+"/"+object.GetName()+" with uid "+string(*o.Preconditions.UID))
	return s.err
}

// TestMain fails when a test leaves a goroutine running.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestCreatedJob(t *testing.T) {
	full := prepull.Job{Namespace: "batch", Name: "mesh-1", Pull: prepull.Pull{
		Image:        "quick-exit:v1",
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch"}},
		PullSecrets:  []string{"registry"},
	}}
	owner := func(kind string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{
			APIVersion: "sidecartermination.dev/v1alpha1", Kind: kind, Name: "mesh", UID: uid, Controller: ptr.To(true),
		}}
	}
	labels := map[string]string{"app.kubernetes.io/managed-by": settings.Name, "sidecartermination.dev/policy": "mesh"}
	for name, tc := range map[string]struct {
		policy v1alpha1.Policy
		job    prepull.Job
		want   kruise.ImagePullJob
	}{
		"namespaced policy, every field": {namespaced, full, kruise.ImagePullJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "mesh-1", Labels: labels, OwnerReferences: owner("SidecarTerminationPolicy", "4a1b")},
			Spec: kruise.ImagePullJobSpec{Image: "quick-exit:v1", ImagePullJobTemplate: kruise.ImagePullJobTemplate{
				Selector:         &kruise.ImagePullJobNodeSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch"}}},
				PullSecrets:      []string{"registry"},
				Parallelism:      ptr.To(intstr.FromInt32(10)),
				CompletionPolicy: kruise.CompletionPolicy{Type: "Never"},
			}},
		}},
		"cluster policy, required fields": {ofCluster, prepull.Job{Namespace: "system", Name: "mesh-2", Pull: prepull.Pull{Image: "quick-exit:v1"}}, kruise.ImagePullJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "mesh-2", Labels: labels, OwnerReferences: owner("ClusterSidecarTerminationPolicy", "5c2d")},
			Spec: kruise.ImagePullJobSpec{Image: "quick-exit:v1", ImagePullJobTemplate: kruise.ImagePullJobTemplate{
				Parallelism:      ptr.To(intstr.FromInt32(10)),
				CompletionPolicy: kruise.CompletionPolicy{Type: "Never"},
			}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			if err := (&Jobs{Client: s}).Create(t.Context(), tc.policy, tc.job); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tc.want, s.created); diff != "" {
				t.Errorf("job (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCreateErrors(t *testing.T) {
	job := prepull.Job{Namespace: "batch", Name: "mesh-1"}
	webhook, broken, taken := apierrors.NewBadRequest("invalid image"), errors.New("broken"), apierrors.NewAlreadyExists(resource, job.Name)
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	for name, tc := range map[string]struct {
		err     error
		change  func(*kruise.ImagePullJob) // of the existing job
		listErr error
		want    func(error) bool
	}{
		"denied":                           {err: webhook, want: func(err error) bool { return errors.Is(err, ErrDenied) && errors.Is(err, webhook) }},
		"no connection":                    {err: broken, want: func(err error) bool { return !errors.Is(err, ErrDenied) && errors.Is(err, broken) }},
		"taken by the policy's own job":    {err: taken, change: func(*kruise.ImagePullJob) {}, want: is(nil)},
		"taken, without the label":         {err: taken, change: func(j *kruise.ImagePullJob) { j.Labels = nil }, want: is(ErrDenied)},
		"taken, of another manager":        {err: taken, change: func(j *kruise.ImagePullJob) { j.Labels[optionalkind.LabelManagedBy] = "another" }, want: is(ErrDenied)},
		"taken, without an owner":          {err: taken, change: func(j *kruise.ImagePullJob) { j.OwnerReferences = nil }, want: is(ErrDenied)},
		"taken, of another policy":         {err: taken, change: func(j *kruise.ImagePullJob) { j.OwnerReferences[0].UID = "5c2d" }, want: is(ErrDenied)},
		"taken, of an owner of other kind": {err: taken, change: func(j *kruise.ImagePullJob) { j.OwnerReferences[0].Kind = "ImageListPullJob" }, want: is(ErrDenied)},
		"taken by one that is deleted now": {err: taken, want: apierrors.IsConflict},
		"taken by one that cannot be read": {err: taken, listErr: broken, want: is(broken)},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{err: tc.err, listErr: tc.listErr}
			if tc.change != nil {
				existing := newJob(namespaced, job)
				tc.change(existing)
				s.existing = []kruise.ImagePullJob{*existing}
			}
			if err := (&Jobs{Client: s, Server: s}).Create(t.Context(), namespaced, job); !tc.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"deleted":               {nil, false},
		"already gone":          {apierrors.NewNotFound(resource, "x"), false},
		"replaced by another":   {apierrors.NewConflict(resource, "x", errors.New("uid")), true},
		"internal server error": {apierrors.NewInternalError(errors.New("etcd")), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{err: tc.err}
			err := (&Jobs{Client: s}).Delete(t.Context(), prepull.Existing{Namespace: "batch", Name: "mesh-1", UID: "6e3f"})
			if (err != nil) != tc.want {
				t.Errorf("got %v", err)
			}
			if diff := cmp.Diff([]string{"batch/mesh-1 with uid 6e3f"}, s.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNotify(t *testing.T) {
	ownedBy := func(kind string) *kruise.ImagePullJob {
		return &kruise.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "mesh-1", OwnerReferences: []metav1.OwnerReference{
			{Kind: kind, Name: "mesh", UID: types.UID("of " + kind), Controller: ptr.To(true)},
		}}}
	}
	for name, tc := range map[string]struct {
		object any
		want   []resolve.PolicyRef
	}{
		"namespaced policy": {ownedBy("SidecarTerminationPolicy"), []resolve.PolicyRef{{Kind: resolve.KindNamespaced, Namespace: "system", Name: "mesh"}}},
		"cluster policy":    {ownedBy("ClusterSidecarTerminationPolicy"), []resolve.PolicyRef{{Kind: resolve.KindCluster, Name: "mesh"}}},
		"tombstone": {toolscache.DeletedFinalStateUnknown{Obj: ownedBy("ClusterSidecarTerminationPolicy")},
			[]resolve.PolicyRef{{Kind: resolve.KindCluster, Name: "mesh"}}},
		"other owner": {ownedBy("ImageListPullJob"), nil},
		"no owner":    {&kruise.ImagePullJob{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []resolve.PolicyRef
			notify(tc.object, func(ref resolve.PolicyRef) { got = append(got, ref) })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
		})
	}
}
