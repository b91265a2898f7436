// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/settings"
)

// tolerantReader is a reader for users with few permissions. It treats forbidden lists as empty, a forbidden namespace as one without
// labels, and a forbidden node as a real node, and notes it. A kind that the cluster does not serve has no objects. It reads everything once.
type tolerantReader struct {
	client.Reader
	note  func(format string, arguments ...any)
	known map[string]answer // by what was read
}

type answer struct {
	object runtime.Object
	err    error
}

// once calls read, which reads into the object, unless the key was read before.
func (r *tolerantReader) once(key string, into runtime.Object, read func() error) error {
	known, ok := r.known[key]
	if !ok {
		known.err = read()
		known.object = into.DeepCopyObject()
		r.known[key] = known
	}
	if known.err == nil {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(known.object).Elem())
	}
	return known.err
}

// Get reads the object. Only the first call reads from the cluster.
func (r *tolerantReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return r.once(fmt.Sprintf("%T %s", into, key), into, func() error {
		err := r.Reader.Get(ctx, key, into, options...)
		if !apierrors.IsForbidden(err) {
			return err
		}
		switch object := into.(type) {
		case *corev1.Node:
			r.note("you may not read nodes: every node is assumed to be a real node")
			object.Name = key.Name
		case *metav1.PartialObjectMetadata:
			r.note("you may not read namespace %s: it is assumed to have no labels", key.Name)
		default:
			return err
		}
		return nil
	})
}

// List reads the list. Only the first call reads from the cluster.
func (r *tolerantReader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	var wanted client.ListOptions
	wanted.ApplyOptions(options)
	return r.once(fmt.Sprintf("%T %s %v", into, wanted.Namespace, wanted.LabelSelector), into, func() error {
		err := r.Reader.List(ctx, into, options...)
		switch {
		case apierrors.IsForbidden(err):
			r.note("you may not list %s: they are ignored", describe(into))
			return nil
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			if resource := describe(into); strings.HasSuffix(resource, "sidecarterminationpolicies") {
				r.note("the cluster does not serve %s: is the operator installed? Run: %s check", resource, settings.PluginName)
			}
			return nil
		}
		return err
	})
}

// describe returns the plural resource name of the list's items.
func describe(list client.ObjectList) string {
	kind := strings.TrimSuffix(reflect.TypeOf(list).Elem().Name(), "List")
	resource, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return resource.Resource
}

// isUnavailable reports whether the object is absent or forbidden.
func isUnavailable(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
