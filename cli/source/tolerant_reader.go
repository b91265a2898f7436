// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// tolerantReader is a reader for users with few permissions. It treats forbidden objects as absent, and a forbidden node as a
// real node, and notes both. A kind that the cluster does not serve has no objects. It reads everything once.
type tolerantReader struct {
	client.Reader
	program string // name of the program
	objects map[objectKey]result[client.Object]
	lists   map[listKey]result[client.ObjectList]
	notes   []string
}

type objectKey struct {
	kind reflect.Type
	key  client.ObjectKey
}

type listKey struct {
	kind      reflect.Type
	namespace string
	selector  string
}

type result[T any] struct {
	value T
	err   error
}

func newTolerantReader(reader client.Reader, program string) *tolerantReader {
	return &tolerantReader{Reader: reader, program: program, objects: map[objectKey]result[client.Object]{}, lists: map[listKey]result[client.ObjectList]{}}
}

// Get reads the object. Only the first call reads from the cluster.
func (r *tolerantReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	id := objectKey{reflect.TypeOf(into), key}
	known, ok := r.objects[id]
	if !ok {
		err := r.Reader.Get(ctx, key, into, options...)
		if apierrors.IsForbidden(err) {
			r.forbidden(key, into)
			err = nil
		}
		known = result[client.Object]{into.DeepCopyObject().(client.Object), err}
		r.objects[id] = known
	}
	if known.err != nil {
		return known.err
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(known.value).Elem())
	return nil
}

func (r *tolerantReader) forbidden(key client.ObjectKey, into client.Object) {
	if node, ok := into.(*corev1.Node); ok {
		r.note("you may not read nodes: every node is assumed to be a real node")
		node.Name = key.Name
		return
	}
	r.note(fmt.Sprintf("you may not read namespace %s: it is assumed to have no labels", key.Name))
}

// List reads the list. Only the first call reads from the cluster.
func (r *tolerantReader) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	var wanted client.ListOptions
	wanted.ApplyOptions(options)
	id := listKey{kind: reflect.TypeOf(into), namespace: wanted.Namespace}
	if wanted.LabelSelector != nil {
		id.selector = wanted.LabelSelector.String()
	}
	known, ok := r.lists[id]
	if !ok {
		err := r.Reader.List(ctx, into, options...)
		switch {
		case apierrors.IsForbidden(err):
			r.note(fmt.Sprintf("you may not list %s: they are ignored", describe(into)))
			err = nil
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			if isPolicies(into) {
				r.note(fmt.Sprintf("the cluster does not serve %s: is the operator installed? Run: %s check", describe(into), r.program))
			}
			err = nil
		}
		known = result[client.ObjectList]{into.DeepCopyObject().(client.ObjectList), err}
		r.lists[id] = known
	}
	if known.err != nil {
		return known.err
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(known.value).Elem())
	return nil
}

func isPolicies(list client.ObjectList) bool {
	switch list.(type) {
	case *v1alpha1.SidecarTerminationPolicyList, *v1alpha1.ClusterSidecarTerminationPolicyList:
		return true
	}
	return false
}

// describe returns the plural resource name of the list's items.
func describe(list client.ObjectList) string {
	kind := strings.TrimSuffix(reflect.TypeOf(list).Elem().Name(), "List")
	resource, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return resource.Resource
}

func (r *tolerantReader) note(text string) {
	if !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// isUnavailable reports whether the object is absent or forbidden.
func isUnavailable(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
