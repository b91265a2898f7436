// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
)

// networks disconnect a pod as soon as its phase is terminal, while its sidecars may still run. Calico drops the endpoint,
// Cilium's operator deletes the CiliumEndpoint, and Istio removes the pod from the ambient mesh.
var networks = []struct {
	name, daemonSet string
	// kind is an API of the network, or empty. Reading whether it is served needs no permission.
	kind schema.GroupKind
}{
	{"Calico", "calico-node", schema.GroupKind{Group: "crd.projectcalico.org", Kind: "ClusterInformation"}},
	{"Cilium", "cilium", schema.GroupKind{Group: "cilium.io", Kind: "CiliumEndpoint"}},
	{"Istio ambient", "ztunnel", schema.GroupKind{}},
}

// endsByPhase reports whether the operator ends pods by their phase even if another mode is usable.
func (c *checker) endsByPhase() bool {
	return c.settings.Capabilities.PodPhase == plan.PodPhaseEnabled
}

// checkNetwork warns of networks that disconnect the sidecars of pods with a terminal phase.
func (c *checker) checkNetwork(ctx context.Context) error {
	var found []string
	for _, network := range networks {
		if !network.kind.Empty() {
			if _, err := c.Client.RESTMapper().RESTMapping(network.kind); err == nil {
				found = append(found, network.name)
				continue
			} else if !meta.IsNoMatchError(err) {
				return fmt.Errorf("get %s: %w", network.name, err)
			}
		}
		var daemons appsv1.DaemonSetList
		_, err := c.read(c.Client.List(ctx, &daemons, client.MatchingFields{"metadata.name": network.daemonSet}), "DaemonSets, which identify the network plugin")
		if err != nil {
			return err
		}
		if len(daemons.Items) > 0 {
			found = append(found, network.name)
		}
	}
	if len(found) > 0 {
		c.warn("if sidecars need the network while they end, as log shippers do, set drainSeconds in their policy, or run the operator with --pod-phase=LastResort",
			"found %s: a pod loses its network when its phase is terminal, while its sidecars are still ending", strings.Join(found, ", "))
	}
	return nil
}
