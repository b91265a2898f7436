// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"context"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Observer reads the operator's CRRs from any reader, for callers that never write. Terminator reads them from a cache.
type Observer struct {
	Reader client.Reader
}

// Observe returns the operator's CRRs for the pod as attempts, oldest first, and none where CRRs are not served.
func (o Observer) Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error) {
	attempts, err := observe(ctx, o.Reader, pod, client.MatchingLabels{labelManagedBy: settings.Name})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	return attempts, err
}

// IsServed reports whether the cluster serves CRRs. It needs no permission to read definitions.
func IsServed(mapper meta.RESTMapper) bool {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: kruise.GroupVersion.Group, Kind: "ContainerRecreateRequest"}, kruise.GroupVersion.Version)
	return err == nil
}
