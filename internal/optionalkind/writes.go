// SPDX-License-Identifier: Apache-2.0

package optionalkind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/settings"
)

// ReadExisting reads the object whose name made a create fail, without a cache. It returns a conflict if the object no longer
// exists. The list is an empty one of the resource.
func ReadExisting(
	ctx context.Context, server client.Reader, list client.ObjectList, resource schema.GroupResource, key client.ObjectKey,
) (client.Object, error) {
	// A list by name needs no permission that the cache does not need.
	if err := server.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name}); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", resource, key, err)
	}
	items, err := meta.ExtractList(list)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", resource, key, err)
	case len(items) == 0:
		return nil, apierrors.NewConflict(resource, key.Name, errors.New("it was deleted a moment ago"))
	}
	return items[0].(client.Object), nil
}

// IsOwn reports whether the cache of the operator's own objects has the object with the UID under IndexOwner. Owner is Config.Owner.
func IsOwn(object client.Object, owner client.IndexerFunc, uid types.UID) bool {
	return object.GetLabels()[LabelManagedBy] == settings.Name && slices.Contains(owner(object), string(uid))
}

// IsDenial reports whether validation, authorization or a webhook denied the write, as opposed to a failure of the API
// server.
func IsDenial(err error) bool {
	return apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || ByWebhook(err)
}

// ByWebhook reports whether a webhook denied the write, which it does with any code, or the API server did because it could not call the
// webhook. Names of objects, which messages quote, do not count (k8s.io/apiserver, pkg/admission/plugin/webhook).
func ByWebhook(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && strings.Contains(status.Status().Message, `webhook "`)
}
