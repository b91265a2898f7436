// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// memory is a reader of objects in memory. It supports namespaces and label selectors, but no field selectors. The returned
// objects are shared and must not be modified.
type memory struct {
	types   *runtime.Scheme
	objects map[schema.GroupKind][]client.Object
}

var _ client.Reader = &memory{}

// kindOf returns the kind of the object, or of the items of a list.
func (m *memory) kindOf(object runtime.Object) (schema.GroupKind, error) {
	kind, err := apiutil.GVKForObject(object, m.types)
	if err != nil {
		return schema.GroupKind{}, fmt.Errorf("get the kind of %T: %w", object, err)
	}
	return schema.GroupKind{Group: kind.Group, Kind: strings.TrimSuffix(kind.Kind, "List")}, nil
}

func (m *memory) add(kind schema.GroupVersionKind, object client.Object) {
	m.objects[kind.GroupKind()] = append(m.objects[kind.GroupKind()], object)
}

// Get finds an object by type and name. It also supports PartialObjectMetadata.
func (m *memory) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind, err := m.kindOf(into)
	if err != nil {
		return err
	}
	for _, object := range m.objects[kind] {
		if client.ObjectKeyFromObject(object) != key {
			continue
		}
		if metadata, ok := into.(*metav1.PartialObjectMetadata); ok {
			metadata.Name, metadata.Labels, metadata.Annotations = object.GetName(), object.GetLabels(), object.GetAnnotations()
			return nil
		}
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind)}, key.Name)
}

// List finds objects by type, namespace and labels, in their original order.
func (m *memory) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	kind, err := m.kindOf(into)
	if err != nil {
		return err
	}
	wanted := client.ListOptions{LabelSelector: labels.Everything()}
	wanted.ApplyOptions(options)
	items := []runtime.Object{}
	for _, object := range m.objects[kind] {
		inNamespace := wanted.Namespace == "" || wanted.Namespace == object.GetNamespace()
		if inNamespace && wanted.LabelSelector.Matches(labels.Set(object.GetLabels())) {
			items = append(items, object)
		}
	}
	if err := meta.SetList(into, items); err != nil {
		return fmt.Errorf("list %s: %w", kind, err)
	}
	return nil
}
