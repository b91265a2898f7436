// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const fieldManager = "localcluster"

// connect returns a client that acts as the administrator.
func (c *Cluster) connect() (client.Client, error) {
	configuration, err := clientcmd.BuildConfigFromFlags("", c.layout.AdminKubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return connectWith(configuration)
}

// connectWith returns a client of any API server.
func connectWith(configuration *rest.Config) (client.Client, error) {
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), apiextensionsv1.AddToScheme(types)); err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	configuration = rest.CopyConfig(configuration)
	configuration.QPS = -1
	api, err := client.New(configuration, client.Options{Scheme: types})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return api, nil
}

// render returns the objects of a kustomization, those first that others need, as kubectl apply does.
func render(directory string) ([]*unstructured.Unstructured, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	// A kustomization that this program makes names files of others.
	options.LoadRestrictions = types.LoadRestrictionsNone
	rendered, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", directory, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range rendered.Resources() {
		content, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", resource.CurId(), err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(content); err != nil {
			return nil, fmt.Errorf("read %s: %w", resource.CurId(), err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// writeObject puts one object on the API server.
type writeObject func(ctx context.Context, api client.Client, object *unstructured.Unstructured) error

// applyObject makes the server's object what the given one says.
func applyObject(ctx context.Context, api client.Client, object *unstructured.Unstructured) error {
	return api.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership, client.FieldOwner(fieldManager))
}

// createObject leaves an object alone that is there already.
func createObject(ctx context.Context, api client.Client, object *unstructured.Unstructured) error {
	return client.IgnoreAlreadyExists(api.Create(ctx, object, client.FieldOwner(fieldManager)))
}

// writeAll writes the sorted objects. It waits until the definitions among them are established before it goes on behind
// them.
func writeAll(ctx context.Context, api client.Client, objects []*unstructured.Unstructured, write writeObject) error {
	var pending []string
	for _, object := range objects {
		if object.GetKind() == "CustomResourceDefinition" {
			pending = append(pending, object.GetName())
		} else if err := awaitEstablished(ctx, api, pending); err != nil {
			return err
		} else {
			pending = nil
		}
		if err := write(ctx, api, object); err != nil {
			return fmt.Errorf("write %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return awaitEstablished(ctx, api, pending)
}

func awaitEstablished(ctx context.Context, api client.Client, names []string) error {
	for _, name := range names {
		err := poll(ctx, 30*time.Second, func(ctx context.Context) error {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			if err := api.Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
				return fmt.Errorf("get it: %w", err)
			}
			if !apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
				return errors.New("it has no condition Established that is True")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("the definition %s was not established: %w", name, err)
		}
	}
	return nil
}
