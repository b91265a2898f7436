// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sidecar-termination/operator/internal/scheme"
)

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
	types, err := scheme.New()
	if err != nil {
		return nil, err
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

// createAll creates the objects that do not exist, and waits until all definitions of the API server are established. Webhooks come first,
// so that no custom resource gets past them.
func createAll(ctx context.Context, api client.Client, objects []*unstructured.Unstructured) error {
	after := func(object *unstructured.Unstructured) int {
		if strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return after(a) - after(b) })
	for _, object := range objects {
		if err := client.IgnoreAlreadyExists(api.Create(ctx, object)); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return poll(ctx, 60*time.Second, func(ctx context.Context) error {
		definitions := &apiextensionsv1.CustomResourceDefinitionList{}
		if err := api.List(ctx, definitions); err != nil {
			return fmt.Errorf("list the definitions: %w", err)
		}
		for i := range definitions.Items {
			if definition := &definitions.Items[i]; !apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
				return fmt.Errorf("the definition %s is not established", definition.Name)
			}
		}
		return nil
	})
}

// kubectl runs kubectl as the administrator, and returns its output and errors.
func (c *Cluster) kubectl(ctx context.Context, arguments ...string) ([]byte, error) {
	arguments = append([]string{"--kubeconfig=" + c.layout.AdminKubeconfig()}, arguments...)
	return exec.CommandContext(ctx, c.layout.Kubectl(), arguments...).CombinedOutput()
}
