// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/settings"
)

// readSettings reads the operator's flags, the name of its Deployment and how it was installed. It uses the defaults if the operator is missing, unreadable, or has invalid flags,
// and sets flagsError for invalid flags.
func (c *checker) readSettings(ctx context.Context) error {
	deployment, err := c.Operator(ctx)
	if c.deploymentUnreadable = apierrors.IsForbidden(err); err != nil && !c.deploymentUnreadable {
		return err
	}
	c.installer = installerOf(deployment, c.program)
	var arguments []string
	if deployment != nil {
		c.deploymentName = deployment.Name
		arguments, _ = source.OperatorArguments(deployment)
	}
	if c.settings, c.flagsError = settings.Parse(arguments); c.flagsError == nil {
		return nil
	}
	return c.defaultSettings(ctx)
}

// defaultSettings sets the settings of an operator without flags.
func (c *checker) defaultSettings(context.Context) (err error) {
	c.settings, err = settings.Parse(nil)
	return err
}
