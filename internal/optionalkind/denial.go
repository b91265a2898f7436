// SPDX-License-Identifier: Apache-2.0

package optionalkind

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsDenial reports whether validation, authorization or a webhook denied the write, as opposed to a failure of the API
// server. A webhook denies with any code, and so does the API server for a webhook that it cannot call.
func IsDenial(err error) bool {
	if apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && strings.Contains(status.Status().Message, "webhook")
}
