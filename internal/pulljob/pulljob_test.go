// SPDX-License-Identifier: Apache-2.0

package pulljob

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/resolve"
)

var (
	namespaced = prepull.Policy{UID: "4a1b", Ref: resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: "mesh"}}
	ofCluster  = prepull.Policy{UID: "5c2d", Ref: resolve.PolicyRef{Kind: resolve.KindCluster, Name: "mesh"}}
	resource   = schema.GroupResource{Group: "apps.kruise.io", Resource: "imagepulljobs"}
)

// server is a client that takes jobs, or fails.
type server struct {
	client.Client
	err     error
	created *kruise.ImagePullJob
	deleted []string
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

func TestTheJob(t *testing.T) {
	full := prepull.Job{Namespace: "batch", Name: "mesh-1", Pull: prepull.Pull{
		Image:         "quick-exit:v1",
		NodeSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch"}},
		PullSecrets:   []string{"registry"},
		SandboxConfig: &v1alpha1.SandboxConfig{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
	}}
	owner := func(policy prepull.Policy) []metav1.OwnerReference {
		return []metav1.OwnerReference{{
			APIVersion: "sidecartermination.dev/v1alpha1", Kind: string(policy.Ref.Kind), Name: "mesh", UID: policy.UID, Controller: ptr.To(true),
		}}
	}
	labels := map[string]string{"app.kubernetes.io/managed-by": "sidecar-termination-operator", "sidecartermination.dev/policy": "mesh"}
	for name, tc := range map[string]struct {
		policy prepull.Policy
		job    prepull.Job
		want   kruise.ImagePullJob
	}{
		"of a namespaced policy, with all there is": {namespaced, full, kruise.ImagePullJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "mesh-1", Labels: labels, OwnerReferences: owner(namespaced)},
			Spec: kruise.ImagePullJobSpec{Image: "quick-exit:v1", ImagePullJobTemplate: kruise.ImagePullJobTemplate{
				Selector:         &kruise.ImagePullJobNodeSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "batch"}}},
				PullSecrets:      []string{"registry"},
				SandboxConfig:    &kruise.SandboxConfig{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
				Parallelism:      ptr.To(intstr.FromInt32(10)),
				CompletionPolicy: kruise.CompletionPolicy{Type: "Never"},
			}},
		}},
		"of a cluster policy, with the least": {ofCluster, prepull.Job{Namespace: "system", Name: "mesh-2", Pull: prepull.Pull{Image: "quick-exit:v1"}}, kruise.ImagePullJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "mesh-2", Labels: labels, OwnerReferences: owner(ofCluster)},
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

func TestWhatBecomesOfACreation(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		err              error
		refused, ignored bool
	}{
		"it is there already":            {err: apierrors.NewAlreadyExists(resource, "x"), ignored: true},
		"Kruise's gate is off":           {err: apierrors.NewForbidden(resource, "x", errors.New("feature-gate ImagePullJobGate is not enabled")), refused: true},
		"Kruise does not understand it":  {err: apierrors.NewBadRequest("invalid image"), refused: true},
		"Kruise's manager is down":       {err: apierrors.NewInternalError(errors.New("failed calling webhook")), refused: true},
		"the definition has gone":        {err: apierrors.NewNotFound(resource, ""), refused: true},
		"the API server has its own woe": {err: apierrors.NewInternalError(errors.New("etcd"))},
		"the API server cannot be had":   {err: broken},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Jobs{Client: &server{err: tc.err}}).Create(t.Context(), namespaced, prepull.Job{})
			if (err == nil) != tc.ignored || errors.Is(err, ErrRefused) != tc.refused {
				t.Errorf("got %v", err)
			}
			if err != nil && !errors.Is(err, tc.err) {
				t.Errorf("%v does not tell of %v", err, tc.err)
			}
		})
	}
}

func TestADeletionMeansOneJobAndNoOther(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"it is gone":                 {nil, false},
		"it was gone":                {apierrors.NewNotFound(resource, "x"), false},
		"another one has its name":   {apierrors.NewConflict(resource, "x", errors.New("uid")), true},
		"the API server cannot tell": {apierrors.NewInternalError(errors.New("etcd")), true},
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

func TestWhatIsReadOfAJob(t *testing.T) {
	job := newJob(namespaced, prepull.Job{Namespace: "batch", Name: "mesh-1"})
	job.UID, job.Generation = "6e3f", 1
	want := prepull.Existing{Namespace: "batch", Name: "mesh-1", UID: "6e3f"}
	if diff := cmp.Diff(want, toExisting(job)); diff != "" {
		t.Errorf("a new job (-want +got):\n%s", diff)
	}
	job.Generation, job.DeletionTimestamp = 2, ptr.To(metav1.Now())
	job.Status = kruise.ImagePullJobStatus{StartTime: ptr.To(metav1.Now()), Desired: 4, Active: 1, Succeeded: 2, Failed: 1, FailedNodes: []string{"node-1"}}
	want = prepull.Existing{Namespace: "batch", Name: "mesh-1", UID: "6e3f",
		Changed: true, Deleted: true, Begun: true, Desired: 4, Succeeded: 2, Failed: 1, FailedNodes: []string{"node-1"}}
	if diff := cmp.Diff(want, toExisting(job)); diff != "" {
		t.Errorf("one that somebody has changed and deleted (-want +got):\n%s", diff)
	}
}

func TestThePolicyOfAJobIsTold(t *testing.T) {
	ownedBy := func(kind string) *kruise.ImagePullJob {
		return &kruise.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "mesh-1", OwnerReferences: []metav1.OwnerReference{
			{Kind: kind, Name: "mesh", UID: types.UID("of " + kind), Controller: ptr.To(true)},
		}}}
	}
	for name, tc := range map[string]struct {
		object any
		want   []resolve.PolicyRef
	}{
		"a namespaced one has the job's namespace": {ownedBy("SidecarTerminationPolicy"), []resolve.PolicyRef{{Kind: resolve.KindNamespaced, Namespace: "system", Name: "mesh"}}},
		"a cluster one has none":                   {ownedBy("ClusterSidecarTerminationPolicy"), []resolve.PolicyRef{{Kind: resolve.KindCluster, Name: "mesh"}}},
		"a job that was missed while it was deleted": {toolscache.DeletedFinalStateUnknown{Obj: ownedBy("ClusterSidecarTerminationPolicy")},
			[]resolve.PolicyRef{{Kind: resolve.KindCluster, Name: "mesh"}}},
		"a job of somebody else": {ownedBy("ImageListPullJob"), nil},
		"a job of nobody":        {&kruise.ImagePullJob{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []resolve.PolicyRef
			(&Availability{onJob: func(ref resolve.PolicyRef) { got = append(got, ref) }}).changed(tc.object)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJobsAreServedInTheVersionThatTheOperatorKnows(t *testing.T) {
	definition := func(version string, isServed bool) apiextensionsv1.CustomResourceDefinition {
		return apiextensionsv1.CustomResourceDefinition{
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: version, Served: isServed}}},
			Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
			}},
		}
	}
	for name, tc := range map[string]struct {
		definition apiextensionsv1.CustomResourceDefinition
		want       bool
	}{
		"the version":               {definition("v1alpha1", true), true},
		"the version is turned off": {definition("v1alpha1", false), false},
		"another version":           {definition("v1beta1", true), false},
		"not established":           {apiextensionsv1.CustomResourceDefinition{Spec: definition("v1alpha1", true).Spec}, false},
	} {
		t.Run(name, func(t *testing.T) {
			kept, err := withoutSchemas(&tc.definition)
			if err != nil {
				t.Fatal(err)
			}
			if got := servesJobs(*kept.(*apiextensionsv1.CustomResourceDefinition)); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
