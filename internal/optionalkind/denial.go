// SPDX-License-Identifier: Apache-2.0

package optionalkind

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsDenial reports whether validation, authorization or a webhook denied the write, as opposed to a failure of the API
// server.
func IsDenial(err error) bool {
	if apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return true
	}
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "webhook")
}
