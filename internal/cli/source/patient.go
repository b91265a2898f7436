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

// patient is a reader for users who may not read everything, and that asks for the same thing once. What a user may not
// read is noted and taken for absent, but for a node, which is taken for a real one. A kind that the cluster does not
// serve has no objects.
type patient struct {
	client.Reader
	program string // as users call it
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

func newPatient(reader client.Reader, program string) *patient {
	return &patient{Reader: reader, program: program, objects: map[objectKey]result[client.Object]{}, lists: map[listKey]result[client.ObjectList]{}}
}

// Get reads the object, the first time from the cluster.
func (p *patient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	id := objectKey{reflect.TypeOf(into), key}
	known, ok := p.objects[id]
	if !ok {
		err := p.Reader.Get(ctx, key, into, options...)
		if apierrors.IsForbidden(err) {
			p.forbidden(key, into)
			err = nil
		}
		known = result[client.Object]{into.DeepCopyObject().(client.Object), err}
		p.objects[id] = known
	}
	if known.err != nil {
		return known.err
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(known.value).Elem())
	return nil
}

func (p *patient) forbidden(key client.ObjectKey, into client.Object) {
	if node, ok := into.(*corev1.Node); ok {
		p.note("you may not read nodes: every node is taken for a real one")
		node.Name = key.Name
		return
	}
	p.note(fmt.Sprintf("you may not read namespace %s: it is taken to have no labels", key.Name))
}

// List reads the list, the first time from the cluster.
func (p *patient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	var wanted client.ListOptions
	wanted.ApplyOptions(options)
	id := listKey{kind: reflect.TypeOf(into), namespace: wanted.Namespace}
	if wanted.LabelSelector != nil {
		id.selector = wanted.LabelSelector.String()
	}
	known, ok := p.lists[id]
	if !ok {
		err := p.Reader.List(ctx, into, options...)
		switch {
		case apierrors.IsForbidden(err):
			p.note(fmt.Sprintf("you may not list %s: they are left out", describe(into)))
			err = nil
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			if isPolicies(into) {
				p.note(fmt.Sprintf("the cluster does not serve %s: is the operator installed? Run: %s check", describe(into), p.program))
			}
			err = nil
		}
		known = result[client.ObjectList]{into.DeepCopyObject().(client.ObjectList), err}
		p.lists[id] = known
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

// describe returns the resource of the list's items, as rights name it.
func describe(list client.ObjectList) string {
	kind := strings.TrimSuffix(reflect.TypeOf(list).Elem().Name(), "List")
	resource, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return resource.Resource
}

func (p *patient) note(text string) {
	if !slices.Contains(p.notes, text) {
		p.notes = append(p.notes, text)
	}
}

// isAbsence reports whether there is nothing to read, or not for this user.
func isAbsence(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
