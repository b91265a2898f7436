//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// othersNamespace does not have LabelNamespace. The node's name sorts before the names of the cluster's nodes.
const (
	othersNamespace = "e2e-others"
	othersNode      = "a-node-of-others"
)

// AddOthers simulates a cluster that is in use: it creates a Job that hangs because nothing declares its sidecar, and a node
// without labels that is not Ready. It keeps objects of an interrupted run. The returned function removes them.
func AddOthers() (remove func() error, err error) {
	cluster, err := Connect()
	if err != nil {
		return nil, err
	}
	job := Job("hangs", corev1.RestartPolicyNever, Sidecar(ExitsZeroOnTerm), Main(0))
	job.Namespace = othersNamespace
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: othersNamespace}},
		job,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: othersNode}},
		// OpenKruise creates one when a node becomes Ready.
		Kruise("NodeImage", othersNode, map[string]any{}),
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	// The namespace of the last run may still be terminating.
	if err := poll(ctx, func(ctx context.Context) error {
		for _, object := range objects {
			if err := cluster.Client.Create(ctx, object.DeepCopyObject().(client.Object)); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		var failures []error
		for _, object := range objects {
			if err := client.IgnoreNotFound(cluster.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
				failures = append(failures, fmt.Errorf("delete %T %s: %w", object, object.GetName(), err))
			}
		}
		return errors.Join(failures...)
	}, nil
}
