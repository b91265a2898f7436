// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errNothingReadable means that the API server has denied every read.
var errNothingReadable = errors.New("you may not read anything that this command checks: ask a cluster administrator to run it, " +
	"or for permission to read Deployments, CustomResourceDefinitions, nodes, admission policies and the policies of the operator")

// countingClient counts the reads that the API server permits and denies.
type countingClient struct {
	client.Client
	permitted, denied int
}

// Get implements client.Reader.
func (c *countingClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return c.count(c.Client.Get(ctx, key, into, options...))
}

// List implements client.Reader.
func (c *countingClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return c.count(c.Client.List(ctx, into, options...))
}

// count counts the outcome of a read. A kind that the cluster does not serve is neither permitted nor denied.
func (c *countingClient) count(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		c.denied++
	case !meta.IsNoMatchError(err):
		c.permitted++
	}
	return err
}

// err returns an error if every read was denied.
func (c *countingClient) err() error {
	if c.denied > 0 && c.permitted == 0 {
		return errNothingReadable
	}
	return nil
}
