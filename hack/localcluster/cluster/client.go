// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/internal/scheme"
)

// connect returns a client that acts as the administrator.
func (c *Cluster) connect() (client.Client, error) {
	configuration, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
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

// createAll creates the objects that do not exist, and waits until all definitions of the API server are established. Webhooks come first,
// so that no custom resource gets past them.
func createAll(ctx context.Context, api client.Client, objects []*unstructured.Unstructured) error {
	for _, webhooks := range []bool{true, false} {
		for _, object := range objects {
			if strings.HasSuffix(object.GetKind(), "WebhookConfiguration") != webhooks {
				continue
			}
			if err := client.IgnoreAlreadyExists(api.Create(ctx, object)); err != nil {
				return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
	}
	return progress.Poll(ctx, pollInterval, 60*time.Second, func(ctx context.Context) error {
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
	arguments = append([]string{"--kubeconfig=" + c.AdminKubeconfig()}, arguments...)
	return exec.CommandContext(ctx, c.Kubectl(), arguments...).CombinedOutput()
}
