// SPDX-License-Identifier: Apache-2.0

// Package observe reads the admission policies of an installation, for the operator and for the plugin. It writes nothing.
package observe

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/shipped"
)

// AdmissionPolicy returns the state of an admission policy with its binding, and since when both exist. With an error the state is Unknown.
func AdmissionPolicy(
	ctx context.Context, reader client.Reader, policy shipped.AdmissionPolicy, in shipped.Installation,
) (status shipped.Status, created time.Time, err error) {
	objects := policy.Objects(in)
	for i, object := range objects {
		err := reader.Get(ctx, client.ObjectKeyFromObject(object), object)
		switch {
		case meta.IsNoMatchError(err):
			return shipped.Status{State: shipped.NotServed}, created, nil
		case apierrors.IsNotFound(err):
			objects[i] = nil
		case err != nil:
			return shipped.Status{State: shipped.Unknown}, created, fmt.Errorf("get admission policy %s: %w", object.GetName(), err)
		case object.GetCreationTimestamp().After(created):
			created = object.GetCreationTimestamp().Time
		}
	}
	return policy.Compare(in, objects), created, nil
}
