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

// networks are those that cut off a pod whose phase is terminal, while its sidecars may still run: Calico drops the endpoint,
// Cilium's operator deletes the CiliumEndpoint, and Istio takes the pod out of the ambient mesh.
var networks = []struct {
	name string
	// kind is served where the network is installed; empty where it has none of its own. daemonSet runs on its nodes.
	kind      schema.GroupKind
	daemonSet string
}{
	{"Calico", schema.GroupKind{Group: "crd.projectcalico.org", Kind: "ClusterInformation"}, "calico-node"},
	{"Cilium", schema.GroupKind{Group: "cilium.io", Kind: "CiliumEndpoint"}, "cilium"},
	{"Istio ambient", schema.GroupKind{}, "ztunnel"},
}

// network warns of networks that sidecars lose when the operator writes a phase. It says nothing where the operator does not
// write phases before it tries other modes.
func (c *checker) network(ctx context.Context) error {
	if !c.writesPhaseEarly() {
		return nil
	}
	var found []string
	readable := true
	for _, network := range networks {
		served, err := c.serves(network.kind)
		if err != nil {
			return fmt.Errorf("look for %s: %w", network.name, err)
		}
		if !served && readable {
			var daemons appsv1.DaemonSetList
			err := c.client.List(ctx, &daemons, client.MatchingFields{"metadata.name": network.daemonSet})
			switch {
			case c.unreadable(err, "DaemonSets, which tell the network of pods"):
				readable = false
			case err != nil:
				return fmt.Errorf("look for %s: %w", network.name, err)
			}
			served = slices.ContainsFunc(daemons.Items, func(d appsv1.DaemonSet) bool { return d.DeletionTimestamp == nil })
		}
		if served {
			found = append(found, network.name)
		}
	}
	if len(found) > 0 {
		c.warn("if sidecars need the network at their end, such as log shippers, set drainSeconds in their policy, or run the operator with --pod-phase=LastResort",
			"found %s: a pod loses its network once its phase is written, while its sidecars are still stopping", strings.Join(found, ", "))
	}
	return nil
}

// writesPhaseEarly reports whether the operator writes phases where another mode could be used.
func (c *checker) writesPhaseEarly() bool {
	return c.settings.Capabilities.PodPhase == plan.PodPhaseEnabled
}

// serves reports whether the cluster serves the kind, in any version. Every user may ask that.
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
