// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/internal/settings"
)

const deployTimeout = 120 * time.Second

// kustomization is the installation that Deploy applies: an overlay with another tag of the operator's image. It lies two directories
// below the repository.
const kustomization = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../config/overlays/local]
images: [{name: %s, newTag: %q}]
components: [%s]
`

// Deploy builds the operator from the working tree, applies the overlay with its image and waits until the new operator is ready.
func (c *Cluster) Deploy(ctx context.Context) error {
	return c.change(func(c *Cluster) error {
		var tag string
		err := progress.Step("build the operator", func() (err error) {
			tag, err = c.buildOperator(ctx)
			return err
		})
		if err != nil {
			return err
		}
		components := ""
		// Older API servers do not serve MutatingAdmissionPolicies.
		if older(c.Kubernetes, "v1.36.0") {
			components = "../../config/components/no-outcome-policy"
		}
		content := fmt.Sprintf(kustomization, images.OperatorRepository, tag, components)
		if err := layout.WriteFile(filepath.Join(c.overlay(), "kustomization.yaml"), []byte(content)); err != nil {
			return err
		}
		if err := c.install(ctx); err != nil {
			return err
		}
		progress.Say("deployed %s:%s", images.OperatorRepository, tag)
		return nil
	})
}

// Reinstall applies again what Deploy has applied last, and waits until the operator is ready.
func (c *Cluster) Reinstall(ctx context.Context) error {
	return c.change(func(c *Cluster) error { return c.install(ctx) })
}

// overlay is the directory of the overlay that Deploy applies.
func (c *Cluster) overlay() string { return c.Path("deploy") }

// install applies the overlay, and waits until all replicas are of the newest revision and available. Its error has what a person needs to see
// why they are not: the pods with their events, and the end of their logs.
func (c *Cluster) install(ctx context.Context) error {
	if output, err := c.kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--field-manager=localcluster", "-k", c.overlay()); err != nil {
		return fmt.Errorf("deploy the operator: %w: %s", err, output)
	}
	const namespace, deployment = "--namespace=" + settings.Namespace, "deployment/" + settings.DeploymentName
	return progress.Step("wait for the operator", func() error {
		output, err := c.kubectl(ctx, namespace, "rollout", "status", deployment, "--timeout="+deployTimeout.String())
		if err != nil {
			pods, _ := c.kubectl(ctx, namespace, "describe", "pods")
			logs, _ := c.kubectl(ctx, namespace, "logs", deployment, "--all-pods", "--all-containers", "--tail="+strconv.Itoa(logLines))
			return fmt.Errorf("the operator did not become ready: %w: %s\n%s\n%s", err, output, pods, logs)
		}
		return nil
	})
}

// buildOperator makes the operator's image known to all nodes, and returns its tag, which is derived from the image.
func (c *Cluster) buildOperator(ctx context.Context) (tag string, err error) {
	image, err := images.Operator(ctx, c.Repository, platform())
	if err != nil {
		return "", fmt.Errorf("build the operator's image: %w", err)
	}
	digest, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("digest the operator's image: %w", err)
	}
	tag = digest.Hex[:12]
	return tag, c.importImage(ctx, images.OperatorRepository+":"+tag, image)
}
