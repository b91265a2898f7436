// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/internal/settings"
)

const deployTimeout = 120 * time.Second

// overlay is the kustomization that Deploy renders, relative to the repository.
const overlay = "config/overlays/local"

// Deploy builds the operator from the working tree, applies the overlay with its image and waits until the new operator is ready.
func (c *Cluster) Deploy(ctx context.Context) error {
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
		if err := importImages(ctx, description.ContainerdSocket(node), archive); err != nil {
			return err
		}
	}
	objects, err := renderOverlay(filepath.Join(c.layout.Repository, overlay), tag)
	if err != nil {
		return err
	}
	api, err := c.connect()
	if err != nil {
		return err
	}
	if err := writeAll(ctx, api, objects, applyObject); err != nil {
		return fmt.Errorf("deploy the operator: %w", err)
	}
	return c.awaitOperator(ctx, tag)
}

// awaitOperator waits until all replicas are of the newest revision and available. Its error has what a person needs to see why
// they are not: the pods with their events, and the end of their logs.
func (c *Cluster) awaitOperator(ctx context.Context, tag string) error {
	const deployment = "deployment/" + settings.DeploymentName
	err := c.progress.Step("wait for the operator", func() error {
		output, err := c.kubectl(ctx, "rollout", "status", deployment, "--timeout="+deployTimeout.String())
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	if err != nil {
		pods, _ := c.kubectl(ctx, "describe", "pods")
		logs, _ := c.kubectl(ctx, "logs", deployment, "--all-pods", "--all-containers", "--tail="+strconv.Itoa(logLines))
		return fmt.Errorf("the operator did not become ready: %w\n%s\n%s", err, pods, logs)
	}
	c.progress.Say("deployed %s:%s", images.OperatorRepository, tag)
	return nil
}

// kubectl runs kubectl in the operator's namespace, and returns its output and errors.
func (c *Cluster) kubectl(ctx context.Context, arguments ...string) ([]byte, error) {
	arguments = append([]string{"--kubeconfig=" + c.layout.AdminKubeconfig(), "--namespace=" + settings.Namespace}, arguments...)
	return exec.CommandContext(ctx, c.layout.Path("bin", "kubectl"), arguments...).CombinedOutput()
}

// buildOperator returns an archive of the operator's image, and the image's tag, which is
// derived from the program.
func (c *Cluster) buildOperator(ctx context.Context) (archive, tag string, err error) {
	program, err := c.Compile(ctx, ".")
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
	return renderResources(types.Kustomization{
		Resources: []string{overlay},
		// The manifests call the image by the operator's name. The overlay may have renamed it already.
		Images: []types.Image{
			{Name: settings.Name, NewName: images.OperatorRepository, NewTag: tag},
			{Name: images.OperatorRepository, NewTag: tag},
		},
	})
}

// renderResources returns the objects of a kustomization. Its resources have absolute paths.
func renderResources(kustomization types.Kustomization) (objects []*unstructured.Unstructured, err error) {
	directory, err := os.MkdirTemp("", "localcluster-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the kustomization: %w", err)
	}
	defer func() { _ = os.RemoveAll(directory) }()
	kustomization.TypeMeta = types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind}
	for i, resource := range kustomization.Resources {
		if kustomization.Resources[i], err = filepath.Rel(directory, resource); err != nil {
			return nil, fmt.Errorf("find the way to %s: %w", resource, err)
		}
	}
	content, err := yaml.Marshal(kustomization)
	if err != nil {
		return nil, fmt.Errorf("make the kustomization: %w", err)
	}
	if err := layout.WriteFile(filepath.Join(directory, "kustomization.yaml"), content); err != nil {
		return nil, err
	}
	return render(directory)
}
