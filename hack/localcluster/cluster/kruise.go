// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

var broadcastJobs = schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1alpha1", Resource: "broadcastjobs"}

var webhookConfigurations = []schema.GroupVersionResource{
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
}

// InstallKruise installs Kruise on the running cluster, or completes it, and waits until
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
	return c.addKruise(ctx, description, previous)
}

// addKruise installs Kruise on a running cluster that may never have had it.
func (c *Cluster) addKruise(ctx context.Context, description components.Cluster, previous state) error {
	if _, err := c.builder.Ensure(ctx, toolchain.Kruise()); err != nil {
		return err
	}
	previous.Kruise = true
	if err := c.saveState(previous); err != nil {
		return err
	}
	return c.installKruise(ctx, description)
}

// WriteKruiseObjects writes all that a manager of Kruise needs to any API server: definitions, webhook configurations,
// accounts and rights. It runs nothing.
func (c *Cluster) WriteKruiseObjects(ctx context.Context, server *rest.Config) error {
	clients, err := connectWith(server)
	if err != nil {
		return err
	}
	return c.writeKruiseObjects(ctx, clients)
}

func (c *Cluster) writeKruiseObjects(ctx context.Context, clients *clients) error {
	objects, err := c.renderKruise(ctx)
	if err != nil {
		return err
	}
	// What exists is left alone: the manager completes its webhook configurations itself.
	if err := clients.writeAll(ctx, objects, createObject); err != nil {
		return fmt.Errorf("install kruise: %w", err)
	}
	return nil
}

func (c *Cluster) installKruise(ctx context.Context, description components.Cluster) error {
	clients, err := c.connect()
	if err != nil {
		return err
	}
	if err := c.writeKruiseObjects(ctx, clients); err != nil {
		return err
	}
	// Kruise's daemon finds its one container runtime at a fixed path.
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
	if err := poll(ctx, 60*time.Second, clients.kruiseServes); err != nil {
		return fmt.Errorf("the webhooks of kruise do not serve: %w\n%s", err, tail(c.layout.Log(components.KruiseManager)))
	}
	return nil
}

// kruiseServes fails unless an object that Kruise's webhooks look at can be created.
func (c *clients) kruiseServes(ctx context.Context) error {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": broadcastJobs.GroupVersion().String(),
		"kind":       "BroadcastJob",
		"metadata":   map[string]any{"generateName": "webhook-check-"},
		"spec": map[string]any{
			"completionPolicy": map[string]any{"type": "Always"},
			"template": map[string]any{"spec": map[string]any{
				"restartPolicy": "Never",
				"containers":    []any{map[string]any{"name": "main", "image": "localhost/busybox:1"}},
			}},
		},
	}}
	_, err := c.dynamic.Resource(broadcastJobs).Namespace(metav1.NamespaceDefault).
		Create(ctx, job, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("create a BroadcastJob: %w", err)
	}
	return nil
}

// RemoveKruise stops Kruise and removes its webhooks and its custom resources with their
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
		if err := c.stop(ctx, component); err != nil {
			return err
		}
	}
	clients, err := c.connect()
	if err != nil {
		return err
	}
	if err := clients.removeKruiseWebhooks(ctx); err != nil {
		return err
	}
	if err := clients.removeKruiseDefinitions(ctx); err != nil {
		return err
	}
	previous.Kruise = false
	return c.saveState(previous)
}

func (c *clients) removeKruiseWebhooks(ctx context.Context) error {
	for _, resource := range webhookConfigurations {
		list, err := c.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the %s: %w", resource.Resource, err)
		}
		for _, item := range list.Items {
			if !strings.HasPrefix(item.GetName(), "kruise-") {
				continue
			}
			if err := ignoreMissing(c.dynamic.Resource(resource).Delete(ctx, item.GetName(), metav1.DeleteOptions{})); err != nil {
				return fmt.Errorf("delete the webhook configuration %s: %w", item.GetName(), err)
			}
		}
	}
	return nil
}

func (c *clients) removeKruiseDefinitions(ctx context.Context) error {
	mine, err := c.kruiseDefinitions(ctx)
	if err != nil {
		return err
	}
	// Nothing converts between versions any more, and without that the custom resources
	// could not be listed to be deleted.
	const withoutConversion = `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`
	for _, name := range mine {
		_, err := c.dynamic.Resource(definitions).Patch(ctx, name, types.MergePatchType, []byte(withoutConversion), metav1.PatchOptions{})
		if err := ignoreMissing(err); err != nil {
			return fmt.Errorf("end the conversion of %s: %w", name, err)
		}
		if err := ignoreMissing(c.dynamic.Resource(definitions).Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return fmt.Errorf("delete the definition %s: %w", name, err)
		}
	}
	return poll(ctx, 60*time.Second, func(ctx context.Context) error {
		left, err := c.kruiseDefinitions(ctx)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		return errors.Join(fmt.Errorf("definitions are left: %s", strings.Join(left, ", ")), c.releaseFinalizers(ctx, left))
	})
}

func (c *clients) kruiseDefinitions(ctx context.Context) ([]string, error) {
	list, err := c.dynamic.Resource(definitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the definitions: %w", err)
	}
	var names []string
	for _, item := range list.Items {
		if strings.HasSuffix(item.GetName(), ".kruise.io") {
			names = append(names, item.GetName())
		}
	}
	return names, nil
}

// releaseFinalizers lets custom resources go whose controller no longer runs.
func (c *clients) releaseFinalizers(ctx context.Context, names []string) error {
	for _, name := range names {
		plural, group, _ := strings.Cut(name, ".")
		for _, version := range []string{"v1beta1", "v1alpha1"} {
			resource := c.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: plural})
			list, err := resource.List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, item := range list.Items {
				if len(item.GetFinalizers()) == 0 {
					continue
				}
				_, err := resource.Namespace(item.GetNamespace()).Patch(ctx, item.GetName(), types.MergePatchType,
					[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if err := ignoreMissing(err); err != nil {
					return fmt.Errorf("release %s %s: %w", name, item.GetName(), err)
				}
			}
		}
	}
	return nil
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
