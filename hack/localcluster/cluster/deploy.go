// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
)

const (
	operatorNamespace  = "sidecar-termination-system"
	operatorDeployment = "sidecar-termination-controller-manager"
	// operatorImage is what the manifests call the operator's image.
	operatorImage = "sidecar-termination-operator"

	deployTimeout = 120 * time.Second
)

// DefaultOverlay is the kustomization that Deploy renders unless told otherwise, relative
// to the repository.
const DefaultOverlay = "config/overlays/local"

// Deploy builds the operator from the working tree, applies the overlay with its image
// and waits until the new operator is ready.
func (c *Cluster) Deploy(ctx context.Context, overlay string) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	description, _, err := c.current()
	if err != nil {
		return err
	}
	var archive, tag string
	err = c.progress.Step("build the operator", func() (err error) {
		archive, tag, err = c.buildOperator(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for _, node := range description.Nodes {
		if err := importImage(ctx, description.ContainerdSocket(node), archive); err != nil {
			return err
		}
	}
	if !filepath.IsAbs(overlay) {
		overlay = filepath.Join(c.layout.Repository, overlay)
	}
	objects, err := renderOverlay(overlay, tag)
	if err != nil {
		return err
	}
	clients, err := c.connect()
	if err != nil {
		return err
	}
	if err := clients.writeAll(ctx, objects, applyObject); err != nil {
		return fmt.Errorf("deploy the operator: %w", err)
	}
	return c.awaitOperator(ctx, clients, tag)
}

func (c *Cluster) awaitOperator(ctx context.Context, clients *clients, tag string) error {
	err := c.progress.Step("wait for the operator", func() error {
		return poll(ctx, deployTimeout, clients.operatorReady)
	})
	if err != nil {
		return fmt.Errorf("the operator did not become ready: %w\n%s", err, clients.describePods(ctx, operatorNamespace))
	}
	c.progress.Say("deployed %s:%s", images.OperatorRepository, tag)
	return nil
}

// buildOperator returns an archive of the operator's image, and the image's tag, which is
// derived from the program.
func (c *Cluster) buildOperator(ctx context.Context) (archive, tag string, err error) {
	program, err := c.compile(ctx, ".")
	if err != nil {
		return "", "", err
	}
	digest := sha256.Sum256(program)
	tag = hex.EncodeToString(digest[:])[:12]
	image, err := images.Operator(program, platform())
	if err != nil {
		return "", "", fmt.Errorf("build the operator's image: %w", err)
	}
	archive, err = c.saveImage(images.OperatorRepository+":"+tag, image)
	return archive, tag, err
}

// renderOverlay returns the objects of the overlay with the operator's image at the tag.
func renderOverlay(overlay, tag string) (objects []*unstructured.Unstructured, err error) {
	directory, err := os.MkdirTemp("", "localcluster-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the kustomization: %w", err)
	}
	defer func() { _ = os.RemoveAll(directory) }()
	base, err := filepath.Rel(directory, overlay)
	if err != nil {
		return nil, fmt.Errorf("find the way to %s: %w", overlay, err)
	}
	kustomization, err := yaml.Marshal(types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{base},
		// The overlay may have renamed the image already.
		Images: []types.Image{
			{Name: operatorImage, NewName: images.OperatorRepository, NewTag: tag},
			{Name: images.OperatorRepository, NewTag: tag},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the kustomization: %w", err)
	}
	if err := writeFile(filepath.Join(directory, "kustomization.yaml"), kustomization); err != nil {
		return nil, err
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", overlay, err)
	}
	return objectsOf(rendered)
}

// operatorReady fails unless all replicas of the operator are those of its newest
// revision and ready.
func (c *clients) operatorReady(ctx context.Context) error {
	deployment, err := c.typed.AppsV1().Deployments(operatorNamespace).Get(ctx, operatorDeployment, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the operator's deployment: %w", err)
	}
	wanted := int32(1)
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	status := deployment.Status
	if status.ObservedGeneration < deployment.Generation || status.Replicas != wanted ||
		status.UpdatedReplicas != wanted || status.ReadyReplicas != wanted {
		return fmt.Errorf("of %d replicas %d are updated and %d ready, %d exist",
			wanted, status.UpdatedReplicas, status.ReadyReplicas, status.Replicas)
	}
	return nil
}
