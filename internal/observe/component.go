// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,verbs=list

// NativeComponent reads what the cluster has of the component native, by label: a Helm release and kustomizations rename its objects. A
// missing permission is a part of the result. The reader must read from the API server: a cache would hold the policies for nothing.
func NativeComponent(ctx context.Context, reader client.Reader) (native.Component, error) {
	var policies admissionv1.MutatingAdmissionPolicyList
	var bindings admissionv1.MutatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&policies, &bindings} {
		switch err := reader.List(ctx, list, client.HasLabels{v1alpha1.LabelNativePolicy}); {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			return native.Component{}, nil
		case apierrors.IsForbidden(err):
			return native.Component{Served: true, Unreadable: err.Error()}, nil
		case err != nil:
			return native.Component{}, fmt.Errorf("list the admission policies of the component native: %w", err)
		}
	}
	return native.NewComponent(policies.Items, bindings.Items), nil
}
