// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
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
	name string
	// kind is an API of the network, or empty. daemonSet is its DaemonSet.
	kind      schema.GroupKind
	daemonSet string
}{
	{"Calico", schema.GroupKind{Group: "crd.projectcalico.org", Kind: "ClusterInformation"}, "calico-node"},
	{"Cilium", schema.GroupKind{Group: "cilium.io", Kind: "CiliumEndpoint"}, "cilium"},
	{"Istio ambient", schema.GroupKind{}, "ztunnel"},
}

// network warns of networks that disconnect sidecars when the operator writes a phase. It has no result if the operator writes
// phases as a last resort or never.
func (c *checker) network(ctx context.Context) error {
	c.name = "Network"
	if !c.writesPhaseEarly() {
		return nil
	}
	var found []string
	readable := true
	for _, network := range networks {
		served, err := c.serves(network.kind)
		if err != nil {
			return fmt.Errorf("get %s: %w", network.name, err)
		}
		if !served && readable {
			var daemons appsv1.DaemonSetList
			err := c.client.List(ctx, &daemons, client.MatchingFields{"metadata.name": network.daemonSet})
			switch {
			case c.unreadable(err, "DaemonSets, which identify the network plugin"):
				readable = false
			case err != nil:
				return fmt.Errorf("get %s: %w", network.name, err)
			}
			served = slices.ContainsFunc(daemons.Items, func(d appsv1.DaemonSet) bool { return d.DeletionTimestamp == nil })
		}
		if served {
			found = append(found, network.name)
		}
	}
	if len(found) > 0 {
		c.warn("if sidecars need the network while they end, as log shippers do, set drainSeconds in their policy, or run the operator with --pod-phase=LastResort",
			"found %s: a pod loses its network when its phase is written, while its sidecars are still ending", strings.Join(found, ", "))
	}
	return nil
}

// writesPhaseEarly reports whether the operator writes phases even if another mode is usable.
func (c *checker) writesPhaseEarly() bool {
	return c.settings.Capabilities.PodPhase == plan.PodPhaseEnabled
}

// serves reports whether the cluster serves the kind in any version. This needs no permission.
func (c *checker) serves(kind schema.GroupKind) (bool, error) {
	if kind.Empty() {
		return false, nil
	}
	_, err := c.client.RESTMapper().RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
