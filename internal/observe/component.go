// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/native"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,resourceNames=sidecar-termination-native-label;sidecar-termination-native-namespaced;sidecar-termination-native-cluster;sidecar-termination-native-environment,verbs=get

// NativeComponent reads what the cluster has of the component native. A missing permission is a part of the result. The reader
// must read from the API server: a cache would need a watch for each object.
func NativeComponent(ctx context.Context, reader client.Reader) (native.Component, error) {
	component := native.Component{Served: true, Policies: map[string]*admissionv1.MutatingAdmissionPolicy{}, Bound: map[string]string{}}
	for _, name := range native.AdmissionPolicies {
		policy, binding := &admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}
		for _, object := range []client.Object{policy, binding} {
			switch err := reader.Get(ctx, client.ObjectKey{Name: name}, object); {
			case meta.IsNoMatchError(err):
				return native.Component{}, nil
			case apierrors.IsForbidden(err):
				return native.Component{Served: true, Unreadable: err.Error()}, nil
			case err != nil && !apierrors.IsNotFound(err):
				return native.Component{}, fmt.Errorf("get admission policy %s: %w", name, err)
			}
		}
		if policy.Name != "" {
			component.Policies[name] = policy
		}
		if binding.Name != "" {
			component.Bound[name] = binding.Spec.PolicyName
		}
	}
	return component, nil
}
