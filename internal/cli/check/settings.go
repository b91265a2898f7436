// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-termination/operator/internal/cli/source"
)

// readSettings reads the flags that the operator runs with. The settings are those of the default flags where there is no
// operator, where the user may not read it, and where its flags cannot be understood: then badFlags says why.
func (c *checker) readSettings(ctx context.Context) error {
	deployment, err := c.Operator(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	var arguments []string
	if deployment != nil {
		arguments, _ = source.OperatorArguments(deployment)
	}
	if c.settings, c.badFlags = c.parse(arguments); c.badFlags == nil {
		return nil
	}
	c.settings, err = c.parse(nil)
	return err
}
