// SPDX-License-Identifier: Apache-2.0

// Package scheme registers the types of objects that the operator and its command line read or write, and maps them to resources.
package scheme

import (
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// New returns a scheme with every such type.
func New() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, crr.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register types: %w", err)
		}
	}
	return scheme, nil
}

// NewMapper returns a mapper that knows the kinds of policies before they are served, so that watches can wait, and discovers all others.
func NewMapper(config *rest.Config, client *http.Client) (meta.RESTMapper, error) {
	policies := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	policies.Add(v1alpha1.GroupVersion.WithKind(string(resolve.KindNamespaced)), meta.RESTScopeNamespace)
	policies.Add(v1alpha1.GroupVersion.WithKind(string(resolve.KindCluster)), meta.RESTScopeRoot)
	discovered, err := apiutil.NewDynamicRESTMapper(config, client)
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{policies, discovered}}, err
}
