// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sidecar-termination/operator/hack/localcluster/components"
)

const probeTimeout = 3 * time.Second

// probe returns nil when the component is healthy.
func (c *Cluster) probe(ctx context.Context, probe components.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if len(probe.Command) > 0 {
		if output, err := exec.CommandContext(ctx, probe.Command[0], probe.Command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("run %s: %w: %s", probe.Command[0], err, output)
		}
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, probe.URL, nil)
	if err != nil {
		return fmt.Errorf("make a health request: %w", err)
	}
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: c.layout.Certificate("ca")}})
	if err != nil {
		return fmt.Errorf("make a health client: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	if err := response.Body.Close(); err != nil {
		return fmt.Errorf("finish the health request: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("health is %s", response.Status)
	}
	return nil
}
