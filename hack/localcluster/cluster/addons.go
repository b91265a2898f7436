// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// InstallKruise installs OpenKruise on the running cluster, or completes it, and waits until its webhooks serve.
func (c *Cluster) InstallKruise(ctx context.Context) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	_, current, err := c.current()
	if err != nil {
		return err
	}
	wanted := current.Versions
	wanted.With = addons.Kruise
	if current.Versions, err = current.Next(wanted); err != nil {
		return err
	}
	return c.complete(ctx, current)
}

// RemoveKruise stops OpenKruise and removes its webhooks and its custom resources with their definitions. It returns when they are gone.
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
		if component.Addon != addons.Kruise {
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
	objects, err := c.addonObjects(ctx, addons.OpenKruise(previous.Kruise), nil)
	if err != nil {
		return err
	}
	if err := removeServed(ctx, api, objects); err != nil {
		return err
	}
	previous.Versions = previous.Without(addons.Kruise)
	return c.saveState(previous)
}

// removeServed removes the webhooks among the objects of an addon that no longer runs, and the definitions with their custom resources.
func removeServed(ctx context.Context, api client.Client, objects []*unstructured.Unstructured) error {
	var definitions []*unstructured.Unstructured
	for _, object := range objects {
		switch object.GetKind() {
		case "CustomResourceDefinition":
			// Nothing converts between versions any more, and without that the custom resources could not be listed to be deleted.
			unconverted := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`))
			if err := client.IgnoreNotFound(api.Patch(ctx, object, unconverted)); err != nil {
				return fmt.Errorf("end the conversion of %s: %w", object.GetName(), err)
			}
			definitions = append(definitions, object)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			definitions = slices.Insert(definitions, 0, object)
		}
	}
	for _, object := range definitions {
		if err := client.IgnoreNotFound(api.Delete(ctx, object)); err != nil {
			return fmt.Errorf("delete %s: %w", object.GetName(), err)
		}
	}
	return poll(ctx, 60*time.Second, func(ctx context.Context) error {
		for _, object := range definitions {
			definition := &apiextensionsv1.CustomResourceDefinition{}
			err := api.Get(ctx, client.ObjectKeyFromObject(object), definition)
			if object.GetKind() != "CustomResourceDefinition" || apierrors.IsNotFound(err) {
				continue
			}
			return errors.Join(fmt.Errorf("the definition %s is left", object.GetName()), err, releaseFinalizers(ctx, api, definition))
		}
		return nil
	})
}

// releaseFinalizers lets custom resources go whose controller no longer runs.
func releaseFinalizers(ctx context.Context, api client.Client, definition *apiextensionsv1.CustomResourceDefinition) error {
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
	return nil
}

// WriteKruiseObjects writes all that a manager of OpenKruise needs to any API server: definitions, webhook configurations, accounts and
// rights. It runs nothing.
func (c *Cluster) WriteKruiseObjects(ctx context.Context, server *rest.Config, version string) error {
	api, err := connectWith(server)
	if err != nil {
		return err
	}
	objects, err := c.addonObjects(ctx, addons.OpenKruise(version), nil)
	if err != nil {
		return err
	}
	return writeAll(ctx, api, objects, createObject)
}

// installAddons installs the addons that have a process among the missing ones, and waits until they are healthy.
func (c *Cluster) installAddons(ctx context.Context, description components.Cluster, missing []components.Component) error {
	for _, addon := range description.Addons {
		if !slices.ContainsFunc(missing, func(component components.Component) bool { return component.Addon == addon.Name }) {
			continue
		}
		if err := c.installAddon(ctx, description, addon); err != nil {
			return fmt.Errorf("install %s: %w", addon.Name, err)
		}
	}
	return nil
}

func (c *Cluster) installAddon(ctx context.Context, description components.Cluster, addon components.Addon) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	authority, err := c.authority()
	if err != nil {
		return err
	}
	objects, err := c.addonObjects(ctx, addon.Addon, authority.Certificate)
	if err != nil {
		return err
	}
	// What exists is left alone: controllers complete their own objects.
	if err := writeAll(ctx, api, objects, createObject); err != nil {
		return err
	}
	if err := c.importAddonImages(ctx, description, addon); err != nil {
		return err
	}
	for _, process := range addon.Processes {
		component := description.Component(addon, process)
		if err := c.launch(component); err != nil {
			return err
		}
		if err := c.mountSecret(ctx, api, description, addon, process); err != nil {
			return err
		}
		if err := c.await(ctx, component); err != nil {
			return err
		}
	}
	if addon.Sample == "" {
		return nil
	}
	sample := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(addon.Sample), &sample.Object); err != nil {
		return fmt.Errorf("read the sample: %w", err)
	}
	if err := poll(ctx, 60*time.Second, func(ctx context.Context) error { return api.Create(ctx, sample.DeepCopy(), client.DryRunAll) }); err != nil {
		return fmt.Errorf("its webhooks do not serve: %w\n%s", err, tail(c.layout.Log(addon.Processes[0].Name)))
	}
	return nil
}

// addonObjects returns the objects of the addon's manifests, those first that others need. The API server reaches the webhooks
// among them on the loopback interface.
func (c *Cluster) addonObjects(ctx context.Context, addon addons.Addon, authority []byte) ([]*unstructured.Unstructured, error) {
	if len(addon.Manifests) == 0 {
		return nil, nil
	}
	source, err := c.builder.AddonSource(ctx, addon)
	if err != nil {
		return nil, err
	}
	var manifests []string
	for _, pattern := range addon.Manifests {
		found, err := filepath.Glob(filepath.Join(source, pattern))
		if err != nil || len(found) == 0 {
			return nil, errors.Join(fmt.Errorf("nothing in the module matches %s", pattern), err)
		}
		manifests = append(manifests, found...)
	}
	kustomization := kustomize.Kustomization{Resources: manifests}
	if addon.SetNamespace {
		kustomization.Namespace = addon.Namespace
	}
	objects, err := renderResources(kustomization)
	if err != nil {
		return nil, err
	}
	if addon.SetNamespace {
		objects = slices.Insert(objects, 0, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": addon.Namespace},
		}})
	}
	objects = slices.DeleteFunc(objects, belongsToPods)
	for _, object := range objects {
		if addon.Edit != nil {
			addon.Edit(object)
		}
		for _, process := range addon.Processes {
			redirect(object, process.Webhook, authority)
		}
	}
	return objects, nil
}

// belongsToPods reports whether the object runs pods, or is of use only where the programs run as pods.
func belongsToPods(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "Deployment", "DaemonSet", "StatefulSet", "HorizontalPodAutoscaler", "PodDisruptionBudget", "APIService", "ServiceMonitor":
		return true
	}
	return false
}

// redirect leads the API server to the webhooks of a process: the Service is an external name of the loopback interface, and clients
// of the Service use the port of the process. The certificate is still one for the name of the Service.
func redirect(object *unstructured.Unstructured, webhook addons.Webhook, authority []byte) {
	switch object.GetKind() {
	case "Service":
		if object.GetName() == webhook.Service {
			object.Object["spec"] = map[string]any{"type": string(corev1.ServiceTypeExternalName), "externalName": "127.0.0.1"}
		}
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		hooks, _ := object.Object["webhooks"].([]any)
		for _, hook := range hooks {
			if fields, isMap := hook.(map[string]any); isMap {
				redirectClient(fields, webhook, authority)
			}
		}
	case "CustomResourceDefinition":
		if fields, found, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "conversion", "webhook"); found {
			redirectClient(fields.(map[string]any), webhook, authority)
		}
	}
}

// redirectClient changes the field clientConfig among the fields, if it leads to the webhook.
func redirectClient(fields map[string]any, webhook addons.Webhook, authority []byte) {
	if name, _, _ := unstructured.NestedString(fields, "clientConfig", "service", "name"); name != webhook.Service {
		return
	}
	_ = unstructured.SetNestedField(fields, int64(webhook.Port), "clientConfig", "service", "port")
	if !webhook.OwnCertificates {
		_ = unstructured.SetNestedField(fields, base64.StdEncoding.EncodeToString(authority), "clientConfig", "caBundle")
	}
}

// mountSecret waits until a process that makes its own certificates has written them to its Secret, and writes them to files, as a
// kubelet would.
func (c *Cluster) mountSecret(ctx context.Context, api client.Client, description components.Cluster, addon components.Addon, process addons.Process) error {
	if process.Webhook.Secret == "" {
		return nil
	}
	component := description.Component(addon, process)
	secret := &corev1.Secret{}
	err := poll(ctx, startTimeout, func(ctx context.Context) error {
		if !c.alive(component) {
			return finalError{errors.New("the process ended")}
		}
		if err := api.Get(ctx, client.ObjectKey{Namespace: addon.Namespace, Name: process.Webhook.Secret}, secret); err != nil {
			return fmt.Errorf("get it: %w", err)
		}
		if len(secret.Data[corev1.TLSCertKey]) == 0 {
			return errors.New("it has no certificate")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the secret %s of %s: %w\n%s", process.Webhook.Secret, process.Name, err, tail(c.layout.Log(process.Name)))
	}
	for name, content := range secret.Data {
		if err := layout.WriteFile(filepath.Join(description.WebhookCertificates(process), name), content); err != nil {
			return err
		}
	}
	return nil
}

// importAddonImages makes the addon's images, and makes them known to all nodes.
func (c *Cluster) importAddonImages(ctx context.Context, description components.Cluster, addon components.Addon) error {
	for _, image := range addon.Images {
		programs := map[string][]byte{}
		for path, binary := range image.Programs {
			program, err := os.ReadFile(filepath.Join(addon.Directory, binary))
			if err != nil {
				return fmt.Errorf("read %s: %w", binary, err)
			}
			programs[path] = program
		}
		built, err := images.Programs(programs, image.Entrypoint, platform())
		if err != nil {
			return fmt.Errorf("build the image %s: %w", image.Reference, err)
		}
		archive, err := c.saveImage(image.Reference, built)
		if err != nil {
			return err
		}
		for _, node := range description.Nodes {
			if err := importImages(ctx, description.ContainerdSocket(node), archive); err != nil {
				return err
			}
		}
	}
	return nil
}
