// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/sidecar-termination/operator/hack/kustomize"
	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// Addon is a further controller, whose programs run as processes of the cluster. Its objects come from its module's own manifests.
type Addon struct {
	// Tool builds the programs. Its source has the manifests.
	Tool toolchain.Tool
	// Namespace is where the addon's own objects live. It is made if it is not among them.
	Namespace string
	// Manifests is a directory with a kustomization in the source, if the addon has objects. Deployments and what belongs to them
	// are left out, since the programs run as processes.
	Manifests string
	// Edit changes an object before it is written. It is optional.
	Edit func(object *unstructured.Unstructured)
	// Webhook is how the API server reaches the webhooks, unless the addon sees to that itself.
	Webhook Webhook
	// Components run in this order.
	Components []Component
	// Image is an image with the program Entrypoint, for the pods that the addon makes. It is optional.
	Image, Entrypoint string
}

// Webhook is a port on the loopback interface that serves webhooks with the cluster's certificate.
type Webhook struct {
	// Service is the name of the Service that the webhook configurations and definitions refer to.
	Service string
	Port    int
}

// Names of the addons, and of lists of them. A cluster has the default ones unless the list is none.
const (
	kruise      = "kruise"
	virtualNode = "virtual-node"

	every = "all"
	none  = "none"
)

var (
	known    = map[string]func(*Cluster) Addon{"argo": argo, "jobset": jobset, kruise: openKruise, "kueue": kueue, virtualNode: virtual}
	defaults = []string{kruise, virtualNode}
)

func knownNames() []string { return slices.Sorted(maps.Keys(known)) }

// parseAddons returns the sorted names of the addons in a list with commas, and those that a cluster has by default.
func parseAddons(text string) ([]string, error) {
	names := slices.Clone(defaults)
	for name := range strings.SplitSeq(text, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case name == every:
			names = knownNames()
		case name == none && strings.TrimSpace(text) == none:
			return nil, nil
		case known[name] == nil:
			return nil, fmt.Errorf("there is no addon %s: choose from %s, or %s, or %s alone", name, strings.Join(knownNames(), ", "), every, none)
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// addon returns the addon with the name.
func (c *Cluster) addon(name string) Addon {
	addon := known[name](c)
	for i, component := range addon.Components {
		component.Addon = name
		addon.Components[i] = c.built(addon.Tool, component.Name, component)
	}
	return addon
}

func (c *Cluster) addons() []Addon {
	var addons []Addon
	for _, name := range c.names() {
		addons = append(addons, c.addon(name))
	}
	return addons
}

// installAddon writes the objects of an addon and imports its image, so that its components can start. Objects that exist are left alone:
// controllers complete their own.
func (c *Cluster) installAddon(ctx context.Context, addon Addon) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(c.authority())
	if err != nil {
		return fmt.Errorf("read the authority of the webhooks: %w", err)
	}
	if err := c.createObjects(ctx, api, addon, authority); err != nil {
		return err
	}
	if addon.Image == "" {
		return nil
	}
	program, err := os.ReadFile(filepath.Join(c.Builder.Directory(addon.Tool), addon.Entrypoint))
	if err != nil {
		return fmt.Errorf("read the program of the image %s: %w", addon.Image, err)
	}
	image, err := images.Program(program, addon.Entrypoint, platform())
	if err != nil {
		return fmt.Errorf("build the image %s: %w", addon.Image, err)
	}
	return c.importImage(ctx, addon.Image, image)
}

// WriteKruiseObjects writes all that a manager of OpenKruise needs to any API server: definitions, webhook configurations, accounts and
// rights. It runs nothing.
func (c *Cluster) WriteKruiseObjects(ctx context.Context, server *rest.Config, versions Versions) error {
	api, err := connectWith(server)
	if err != nil {
		return err
	}
	return c.createObjects(ctx, api, c.at(versions).addon(kruise), nil)
}

// createObjects creates the objects of the addon's manifests, those first that others need. The API server reaches the webhooks among them on
// the loopback interface.
func (c *Cluster) createObjects(ctx context.Context, api client.Client, addon Addon, authority []byte) error {
	if addon.Manifests == "" {
		return nil
	}
	source, err := c.Builder.Source(ctx, addon.Tool)
	if err != nil {
		return err
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder, options.LoadRestrictions = krusty.ReorderOptionLegacy, types.LoadRestrictionsNone
	objects, err := kustomize.Render(filepath.Join(source, addon.Manifests), options)
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, belongsToPods)
	if !slices.ContainsFunc(objects, func(object *unstructured.Unstructured) bool { return object.GetKind() == "Namespace" }) {
		objects = slices.Insert(objects, 0, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": addon.Namespace},
		}})
	}
	for _, object := range objects {
		if addon.Edit != nil {
			addon.Edit(object)
		}
		redirect(object, addon.Webhook, authority)
	}
	return createAll(ctx, api, objects)
}

// belongsToPods reports whether the object runs pods, or is of use only where the programs run as pods.
func belongsToPods(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "Deployment", "DaemonSet", "StatefulSet", "HorizontalPodAutoscaler", "PodDisruptionBudget", "APIService", "ServiceMonitor":
		return true
	}
	return false
}

// redirect leads the API server to the webhooks of an addon: the Service is an external name of the loopback interface, and clients
// of the Service use the port of the process. The certificate is still one for the name of the Service.
func redirect(object *unstructured.Unstructured, webhook Webhook, authority []byte) {
	var clients []any
	switch object.GetKind() {
	case "Service":
		if object.GetName() == webhook.Service {
			object.Object["spec"] = map[string]any{"type": string(corev1.ServiceTypeExternalName), "externalName": "127.0.0.1"}
		}
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		clients, _ = object.Object["webhooks"].([]any)
	case "CustomResourceDefinition":
		if conversion, found, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "conversion", "webhook"); found {
			clients = []any{conversion}
		}
	}
	for _, one := range clients {
		fields, _ := one.(map[string]any)
		if name, _, _ := unstructured.NestedString(fields, "clientConfig", "service", "name"); name == "" || name != webhook.Service {
			continue
		}
		_ = unstructured.SetNestedField(fields, int64(webhook.Port), "clientConfig", "service", "port")
		_ = unstructured.SetNestedField(fields, base64.StdEncoding.EncodeToString(authority), "clientConfig", "caBundle")
	}
}
