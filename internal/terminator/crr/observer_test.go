// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"context"
	"errors"
	"testing"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestObserver(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	crr := newCRR(pod, plan.Write{Attempt: 3}, stopped.Now())
	unlabelled := newCRR(pod, plan.Write{Attempt: 4}, stopped.Now())
	unlabelled.Labels = nil
	elsewhere := newCRR(pod, plan.Write{Attempt: 5}, stopped.Now())
	elsewhere.Namespace = "other"
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		listErr error
		want    int
		wantErr error
	}{
		"served":     {want: 1},
		"not served": {listErr: &meta.NoKindMatchError{}},
		"failing":    {listErr: broken, wantErr: broken},
	} {
		t.Run(name, func(t *testing.T) {
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(crr, unlabelled, elsewhere).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if tc.listErr != nil {
						return tc.listErr
					}
					return c.List(ctx, list, options...)
				},
			}).Build()
			attempts, err := Observer{Reader: reader}.Observe(t.Context(), pod)
			if len(attempts) != tc.want || !errors.Is(err, tc.wantErr) {
				t.Fatalf("got attempts %v, error %v", attempts, err)
			}
			if len(attempts) == 1 && attempts[0].Number != 3 {
				t.Errorf("got attempt %d, want 3", attempts[0].Number)
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
