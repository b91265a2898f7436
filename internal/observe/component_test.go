// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/observe"
)

var admissionPolicies = schema.GroupResource{Group: admissionv1.GroupName, Resource: "mutatingadmissionpolicies"}

// cluster answers reads with the bindings and policies that it has, or with an error.
type cluster struct {
	client.Reader
	policies []string
	bound    map[string]string
	err      error
}

// Get returns the object of this name.
func (c cluster) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if c.err != nil {
		return c.err
	}
	switch object := object.(type) {
	case *admissionv1.MutatingAdmissionPolicy:
		if slices.Contains(c.policies, key.Name) {
			object.Name = key.Name
			return nil
		}
	case *admissionv1.MutatingAdmissionPolicyBinding:
		if policy, ok := c.bound[key.Name]; ok {
			object.Name, object.Spec.PolicyName = key.Name, policy
			return nil
		}
	}
	return apierrors.NewNotFound(admissionPolicies, key.Name)
}

func TestNativeComponent(t *testing.T) {
	denied := apierrors.NewForbidden(admissionPolicies, native.LabelingPolicy, errors.New("no role"))
	policy := func(name string) *admissionv1.MutatingAdmissionPolicy {
		return &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	type policies = map[string]*admissionv1.MutatingAdmissionPolicy
	bound := map[string]string{native.ClusterPolicy: native.ClusterPolicy, native.LabelingPolicy: "other"}
	for name, tc := range map[string]struct {
		cluster cluster
		want    native.Component
		fails   bool
	}{
		"nothing": {cluster{}, native.Component{Served: true, Policies: policies{}, Bound: map[string]string{}}, false},
		"some": {
			cluster{policies: []string{native.LabelingPolicy, "foreign"}, bound: bound},
			native.Component{Served: true, Policies: policies{native.LabelingPolicy: policy(native.LabelingPolicy)}, Bound: maps.Clone(bound)}, false,
		},
		"older Kubernetes":   {cluster{err: &meta.NoKindMatchError{}}, native.Component{}, false},
		"missing permission": {cluster{err: denied}, native.Component{Served: true, Unreadable: denied.Error()}, false},
		"unanswered":         {cluster{err: errors.New("connection refused")}, native.Component{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := observe.NativeComponent(t.Context(), tc.cluster)
			if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != tc.fails {
				t.Errorf("error %v; component (-want +got):\n%s", err, diff)
			}
		})
	}
}
