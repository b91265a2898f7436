// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"context"
	"fmt"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
)

// Observer knows the operator's past requests, like Terminator, but asks a reader of any kind for them. It is for those
// who look and never act.
type Observer struct {
	Reader client.Reader
}

// Observe returns the operator's requests for the pod, oldest first, and none where requests are not served.
func (o Observer) Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error) {
	var list kruise.ContainerRecreateRequestList
	err := o.Reader.List(ctx, &list, client.InNamespace(pod.Namespace), client.MatchingLabels{labelManagedBy: managedBy})
	switch {
	case meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list ContainerRecreateRequests of pod: %w", err)
	}
	return toAttempts(list.Items, pod), nil
}

// IsServed reports whether the cluster serves requests, for those who may not read definitions.
func IsServed(mapper meta.RESTMapper) bool {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: kruise.GroupVersion.Group, Kind: "ContainerRecreateRequest"}, kruise.GroupVersion.Version)
	return err == nil
}
