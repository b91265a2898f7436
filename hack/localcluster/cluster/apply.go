// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/kustomize/api/resmap"
)

const fieldManager = "localcluster"

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// objectsOf returns the rendered resources, those first that others need: namespaces,
// then definitions of custom resources.
func objectsOf(rendered resmap.ResMap) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, resource := range rendered.Resources() {
		content, err := resource.Map()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", resource.CurId(), err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	sortForApply(objects)
	return objects, nil
}

func sortForApply(objects []*unstructured.Unstructured) {
	rank := func(object *unstructured.Unstructured) int {
		switch object.GetKind() {
		case "Namespace":
			return 0
		case "CustomResourceDefinition":
			return 1
		case "ServiceAccount", "ClusterRole", "Role", "ConfigMap", "Secret":
			return 2
		case "Deployment":
			return 4
		default:
			return 3
		}
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
}

// writeObject puts one object on the API server.
type writeObject func(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured) error

// applyObject makes the server's object what the given one says.
func applyObject(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	_, err := client.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// createObject leaves an object alone that is there already.
func createObject(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	_, err := client.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// writeAll writes the sorted objects, and waits until the definitions among them are
// established before it goes on behind them.
func (c *clients) writeAll(ctx context.Context, objects []*unstructured.Unstructured, write writeObject) error {
	pending := []string{}
	for _, object := range objects {
		if object.GetKind() == "CustomResourceDefinition" {
			pending = append(pending, object.GetName())
		} else if len(pending) > 0 {
			if err := c.awaitEstablished(ctx, pending); err != nil {
				return err
			}
			pending = nil
			c.mapper.Reset()
		}
		client, err := c.resource(object)
		if err != nil {
			return err
		}
		if err := write(ctx, client, object); err != nil {
			return fmt.Errorf("write %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return c.awaitEstablished(ctx, pending)
}

func (c *clients) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("find the resource of %s: %w", kind, err)
	}
	client := c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return client, nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return client.Namespace(namespace), nil
}

func (c *clients) awaitEstablished(ctx context.Context, names []string) error {
	for _, name := range names {
		err := poll(ctx, 30*time.Second, func(ctx context.Context) error {
			definition, err := c.dynamic.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("get it: %w", err)
			}
			return established(definition)
		})
		if err != nil {
			return fmt.Errorf("the definition %s was not established: %w", name, err)
		}
	}
	return nil
}

func established(definition *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(definition.Object, "status", "conditions")
	if err != nil {
		return fmt.Errorf("read its conditions: %w", err)
	}
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == "Established" && condition["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("it has no condition Established that is True")
}
