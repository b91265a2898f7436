// SPDX-License-Identifier: Apache-2.0

package served

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsRefusal reports whether a rule or a webhook, and not the API server's own state, stood in the way of a write.
func IsRefusal(err error) bool {
	if apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return true
	}
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "webhook")
}
