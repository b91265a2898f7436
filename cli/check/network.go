// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
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

// servesMetrics reports whether the operator serves metrics to other hosts.
func (c *checker) servesMetrics() bool {
	return c.knowsFlags() && c.settings.Metrics.Address != "" && !isLoopback(c.settings.Metrics.Address)
}

// checkMetricsNetwork says whether a NetworkPolicy limits who can connect to the metrics port. That none does is no warning: a policy that
// does not know the scraper would stop the scrapes, so the installation has none by default.
func (c *checker) checkMetricsNetwork(ctx context.Context) error {
	var policies networkingv1.NetworkPolicyList
	known, err := c.read(c.Client.List(ctx, &policies, client.InNamespace(c.deployment.Namespace)), "NetworkPolicies in namespace "+c.deployment.Namespace)
	if err != nil || !known {
		return err
	}
	_, port, _ := net.SplitHostPort(c.settings.Metrics.Address)
	if restrictsPort(policies.Items, c.deployment, port) {
		c.ok("a NetworkPolicy limits who can connect to the metrics port %s, if the network plugin enforces it", port)
		return nil
	}
	c.add(outcomeOK, "to allow only Prometheus, label its namespace metrics=enabled, and then: "+c.apply("components/network-policy", "networkPolicy.enabled=true"),
		fmt.Sprintf("no NetworkPolicy limits who can connect to the metrics port %s", port))
	return nil
}

// restrictsPort reports whether a policy selects the pods of the Deployment for ingress, and none admits everyone to the port. What
// policies admit adds up. The API server sets the types of a policy that names none.
func restrictsPort(policies []networkingv1.NetworkPolicy, deployment *appsv1.Deployment, port string) bool {
	restricted := false
	for i := range policies {
		spec := &policies[i].Spec
		selector, err := metav1.LabelSelectorAsSelector(&spec.PodSelector)
		selects := err == nil && selector.Matches(labels.Set(deployment.Spec.Template.Labels))
		if !selects || !slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			continue
		}
		restricted = true
		for _, rule := range spec.Ingress {
			if len(rule.From) == 0 && admits(rule.Ports, deployment, port) {
				return false
			}
		}
	}
	return restricted
}

// admits reports whether a rule with the ports admits connections to the TCP port of the Deployment's pods.
func admits(ports []networkingv1.NetworkPolicyPort, deployment *appsv1.Deployment, port string) bool {
	number := int(intstr.Parse(port).IntVal)
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			return false
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(container corev1.Container) bool {
				return slices.ContainsFunc(container.Ports, func(named corev1.ContainerPort) bool {
					return named.Name == p.Port.StrVal && int(named.ContainerPort) == number
				})
			})
		}
		return number >= p.Port.IntValue() && number <= int(ptr.Deref(p.EndPort, p.Port.IntVal))
	})
}
