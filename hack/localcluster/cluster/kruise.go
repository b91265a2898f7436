// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
)

// InstallKruise installs OpenKruise on the running cluster, or completes it, and waits until
// its webhooks serve.
func (c *Cluster) InstallKruise(ctx context.Context) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	description, previous, err := c.current()
	if err != nil {
		return err
	}
	if _, err := c.Build(ctx, previous.Versions, true); err != nil {
		return err
	}
	previous.Kruise = true
	if err := c.saveState(previous); err != nil {
		return err
	}
	return c.installKruise(ctx, description)
}

// WriteKruiseObjects writes all that a manager of OpenKruise needs to any API server: definitions, webhook configurations,
// accounts and rights. It runs nothing.
func (c *Cluster) WriteKruiseObjects(ctx context.Context, server *rest.Config, version string) error {
	api, err := connectWith(server)
	if err != nil {
		return err
	}
	return c.writeKruiseObjects(ctx, api, version)
}

func (c *Cluster) writeKruiseObjects(ctx context.Context, api client.Client, version string) error {
	source, err := c.builder.KruiseSource(ctx, version)
	if err != nil {
		return err
	}
	objects, err := render(filepath.Join(source, "config", "default"))
	if err != nil {
		return err
	}
	// The workloads run as processes.
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Deployment" || object.GetKind() == "DaemonSet"
	})
	// What exists is left alone: the manager completes its webhook configurations itself.
	if err := writeAll(ctx, api, objects, createObject); err != nil {
		return fmt.Errorf("install OpenKruise: %w", err)
	}
	return nil
}

func (c *Cluster) installKruise(ctx context.Context, description components.Cluster) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	if err := c.writeKruiseObjects(ctx, api, description.Kruise.Version); err != nil {
		return err
	}
	// OpenKruise's daemon finds its one container runtime at a fixed path.
	if err := c.linkSocket(description, description.Nodes[0]); err != nil {
		return err
	}
	for _, component := range description.All() {
		if !component.Kruise {
			continue
		}
		if err := c.start(ctx, component); err != nil {
			return err
		}
	}
	if err := poll(ctx, 60*time.Second, func(ctx context.Context) error { return kruiseServes(ctx, api) }); err != nil {
		return fmt.Errorf("the webhooks of OpenKruise do not serve: %w\n%s", err, tail(c.layout.Log(components.KruiseManager)))
	}
	return nil
}

// kruiseServes fails unless an object that OpenKruise's webhooks look at can be created.
func kruiseServes(ctx context.Context, api client.Client) error {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.kruise.io/v1alpha1",
		"kind":       "BroadcastJob",
		"metadata":   map[string]any{"generateName": "webhook-check-", "namespace": metav1.NamespaceDefault},
		"spec": map[string]any{
			"completionPolicy": map[string]any{"type": "Always"},
			"template": map[string]any{"spec": map[string]any{
				"restartPolicy": "Never",
				"containers":    []any{map[string]any{"name": "main", "image": "localhost/busybox:1"}},
			}},
		},
	}}
	if err := api.Create(ctx, job, client.DryRunAll); err != nil {
		return fmt.Errorf("create a BroadcastJob: %w", err)
	}
	return nil
}

// RemoveKruise stops OpenKruise and removes its webhooks and its custom resources with their
// definitions. It returns when they are gone.
func (c *Cluster) RemoveKruise(ctx context.Context) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	description, previous, err := c.current()
	if err != nil {
		return err
	}
	for _, component := range slices.Backward(description.All()) {
		if !component.Kruise {
			continue
		}
		if err := c.stop(ctx, component, stopTimeout); err != nil {
			return err
		}
	}
	api, err := c.connect()
	if err != nil {
		return err
	}
	if err := removeKruiseWebhooks(ctx, api); err != nil {
		return err
	}
	if err := removeKruiseDefinitions(ctx, api); err != nil {
		return err
	}
	previous.Kruise = false
	return c.saveState(previous)
}

func removeKruiseWebhooks(ctx context.Context, api client.Client) error {
	for _, webhooks := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-validating-webhook-configuration"}},
	} {
		if err := client.IgnoreNotFound(api.Delete(ctx, webhooks)); err != nil {
			return fmt.Errorf("delete %s: %w", webhooks.GetName(), err)
		}
	}
	return nil
}

func removeKruiseDefinitions(ctx context.Context, api client.Client) error {
	own, err := kruiseDefinitions(ctx, api)
	if err != nil {
		return err
	}
	// Nothing converts between versions any more, and without that the custom resources
	// could not be listed to be deleted.
	withoutConversion := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`))
	for _, definition := range own {
		if err := client.IgnoreNotFound(api.Patch(ctx, &definition, withoutConversion)); err != nil {
			return fmt.Errorf("end the conversion of %s: %w", definition.Name, err)
		}
		if err := client.IgnoreNotFound(api.Delete(ctx, &definition)); err != nil {
			return fmt.Errorf("delete the definition %s: %w", definition.Name, err)
		}
	}
	return poll(ctx, 60*time.Second, func(ctx context.Context) error {
		left, err := kruiseDefinitions(ctx, api)
		if err != nil || len(left) == 0 {
			return err
		}
		return errors.Join(fmt.Errorf("%d definitions are left, such as %s", len(left), left[0].Name), releaseFinalizers(ctx, api, left))
	})
}

func kruiseDefinitions(ctx context.Context, api client.Client) ([]apiextensionsv1.CustomResourceDefinition, error) {
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := api.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list the definitions: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(definition apiextensionsv1.CustomResourceDefinition) bool {
		return !strings.HasSuffix(definition.Name, ".kruise.io")
	}), nil
}

// releaseFinalizers lets custom resources go whose controller no longer runs.
func releaseFinalizers(ctx context.Context, api client.Client, definitions []apiextensionsv1.CustomResourceDefinition) error {
	for _, definition := range definitions {
		for _, version := range definition.Spec.Versions {
			kind := schema.GroupVersionKind{Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind}
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind)
			if err := api.List(ctx, list); err != nil {
				continue
			}
			for _, item := range list.Items {
				item.SetGroupVersionKind(kind)
				err := api.Patch(ctx, &item, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
				if client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("release %s %s: %w", definition.Name, item.Name, err)
				}
			}
		}
	}
	return nil
}
