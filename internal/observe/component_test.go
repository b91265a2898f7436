// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/observe"
)

var admissionPolicies = schema.GroupResource{Group: admissionv1.GroupName, Resource: "mutatingadmissionpolicies"}

// cluster answers lists with labelled policies and bindings, or with an error.
type cluster struct {
	client.Reader
	policies []string
	err      error
}

// List returns the objects. It fails the test if it is not asked for those with the label.
func (c cluster) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	switch {
	case c.err != nil:
		return c.err
	case asked.LabelSelector.String() != v1alpha1.LabelNativePolicy:
		return fmt.Errorf("asked for %s", asked.LabelSelector)
	}
	for _, label := range c.policies {
		labelled := metav1.ObjectMeta{Name: "team-a-" + label, Labels: map[string]string{v1alpha1.LabelNativePolicy: label}}
		switch list := list.(type) {
		case *admissionv1.MutatingAdmissionPolicyList:
			list.Items = append(list.Items, admissionv1.MutatingAdmissionPolicy{ObjectMeta: labelled})
		case *admissionv1.MutatingAdmissionPolicyBindingList:
			binding := admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: labelled}
			binding.Spec.PolicyName = labelled.Name
			list.Items = append(list.Items, binding)
		}
	}
	return nil
}

func TestNativeComponent(t *testing.T) {
	denied := apierrors.NewForbidden(admissionPolicies, "", errors.New("no role"))
	type policies = map[string]*admissionv1.MutatingAdmissionPolicy
	for name, tc := range map[string]struct {
		cluster cluster
		want    native.Component
		fails   bool
	}{
		"nothing": {cluster{}, native.Component{Served: true, Policies: policies{}, Bound: map[string]string{}}, false},
		"some": {
			cluster{policies: []string{native.LabelingPolicy, "Foreign"}},
			native.Component{
				Served: true, Bound: map[string]string{native.LabelingPolicy: "team-a-Label"},
				Policies: policies{native.LabelingPolicy: {ObjectMeta: metav1.ObjectMeta{
					Name: "team-a-Label", Labels: map[string]string{v1alpha1.LabelNativePolicy: native.LabelingPolicy},
				}}},
			}, false,
		},
		"older Kubernetes":         {cluster{err: &meta.NoKindMatchError{}}, native.Component{}, false},
		"Kubernetes is downgraded": {cluster{err: apierrors.NewNotFound(admissionPolicies, "")}, native.Component{}, false},
		"missing permission":       {cluster{err: denied}, native.Component{Served: true, Unreadable: denied.Error()}, false},
		"unanswered":               {cluster{err: errors.New("connection refused")}, native.Component{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := observe.NativeComponent(t.Context(), tc.cluster)
			if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != tc.fails {
				t.Errorf("error %v; component (-want +got):\n%s", err, diff)
			}
		})
	}
}
