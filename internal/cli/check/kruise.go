// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// The names that OpenKruise's chart and manifests give.
const (
	kruiseManager = "kruise-controller-manager"
	kruiseDaemon  = "kruise-daemon"
)

func (c *checker) kruise(ctx context.Context) error {
	if c.settings.Capabilities.CRRDisabled {
		c.ok("the operator runs without mode CRR and does not use OpenKruise")
		return nil
	}
	kruise, err := source.KruiseServes(ctx, c.client)
	if err != nil {
		return err
	}
	if !kruise.Defined {
		c.ok("OpenKruise is not installed: mode CRR cannot be used, and Auto ends sidecars on real nodes by PodPhase")
		return nil
	}
	c.ok("definition %s is served", crr.DefinitionName)
	switch {
	case kruise.Note != "":
		c.warn("ask someone who may", "%s", kruise.Note)
	case kruise.Guarded:
		c.ok("%s guards requests (failurePolicy Fail)", crr.WebhookConfigurationName)
	default:
		c.warn("restore OpenKruise's webhook with failurePolicy Fail for containerrecreaterequests: without it a request could reach containers of other pods",
			"%s does not guard requests, so that mode CRR is not used", crr.WebhookConfigurationName)
	}
	if err := c.kruiseDaemon(ctx); err != nil {
		return err
	}
	return c.kruiseManager(ctx)
}

// kruiseDaemon compares the nodes with those on which the daemon is ready.
func (c *checker) kruiseDaemon(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes); err != nil {
		if c.unreadable(err, "nodes") {
			return nil
		}
		return fmt.Errorf("list nodes: %w", err)
	}
	var daemons appsv1.DaemonSetList
	if err := c.client.List(ctx, &daemons, client.MatchingFields{"metadata.name": kruiseDaemon}); err != nil {
		if c.unreadable(err, "DaemonSets") {
			return nil
		}
		return fmt.Errorf("look for OpenKruise's daemon: %w", err)
	}
	if len(daemons.Items) == 0 {
		c.warn("see to it that kruise-daemon runs on every node: a request on a node without it comes to nothing, and the next mode follows",
			"there is no DaemonSet %s", kruiseDaemon)
		return nil
	}
	ready, err := c.readyNodes(ctx, &daemons.Items[0])
	switch {
	case c.unreadable(err, "pods in namespace "+daemons.Items[0].Namespace):
		return nil
	case err != nil:
		return err
	}
	marks, total := c.nodeMarks(), 0
	var without []string
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if marks.Classify(node) != plan.NodeReal {
			continue
		}
		if total++; !slices.Contains(ready, node.Name) {
			without = append(without, node.Name)
		}
	}
	if len(without) > 0 {
		c.warn("see why: kubectl get pods -n "+daemons.Items[0].Namespace+" -o wide. There another mode follows after the deadline, and at once on nodes marked by --daemonless-node-label or --daemonless-node-taint",
			"%s is not ready on %d of %d real nodes: %s", kruiseDaemon, len(without), total, firstOf(without))
		return nil
	}
	c.ok("%s is ready on all %d real nodes", kruiseDaemon, total)
	return nil
}

// nodeMarks are those that the operator goes by, or would go by.
func (c *checker) nodeMarks() plan.NodeMarks {
	if len(c.settings.NodeMarks.Virtual.Labels) == 0 {
		return plan.DefaultNodeMarks()
	}
	return c.settings.NodeMarks
}

// readyNodes lists the nodes that have a ready pod of the DaemonSet.
func (c *checker) readyNodes(ctx context.Context, daemon *appsv1.DaemonSet) ([]string, error) {
	selector, err := metav1.LabelSelectorAsSelector(daemon.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("understand DaemonSet %s: %w", daemon.Name, err)
	}
	var pods corev1.PodList
	if err := c.client.List(ctx, &pods, client.InNamespace(daemon.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", daemon.Name, err)
	}
	var nodes []string
	for i := range pods.Items {
		if slices.ContainsFunc(pods.Items[i].Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}) {
			nodes = append(nodes, pods.Items[i].Spec.NodeName)
		}
	}
	return nodes, nil
}

// kruiseManager finds out whether OpenKruise's own SidecarTerminator acts on the pods that environment variables mark.
func (c *checker) kruiseManager(ctx context.Context) error {
	const hint = "either turn its gate SidecarTerminator off, or run the operator with --env-convention=Disabled"
	if c.settings.Resolve.IgnoreEnv {
		c.ok("the operator leaves the environment variables to OpenKruise's own SidecarTerminator (--env-convention=Disabled)")
		return nil
	}
	var deployments appsv1.DeploymentList
	if err := c.client.List(ctx, &deployments, client.MatchingFields{"metadata.name": kruiseManager}); err != nil {
		if c.unreadable(err, "Deployments of all namespaces") {
			return nil
		}
		return fmt.Errorf("look for OpenKruise's manager: %w", err)
	}
	if len(deployments.Items) == 0 {
		c.warn("see to it that it runs with --feature-gates=SidecarTerminator=false, or run the operator with --env-convention=Disabled",
			"there is no Deployment %s, so that its feature gates cannot be read", kruiseManager)
		return nil
	}
	if terminatorGate(deployments.Items[0].Spec.Template.Spec.Containers) {
		c.warn(hint, "OpenKruise's own SidecarTerminator runs and acts on the same environment variables as the operator")
		return nil
	}
	c.ok("OpenKruise's own SidecarTerminator is off")
	return nil
}

// terminatorGate reports whether the gate SidecarTerminator is on. It is alpha and off by default, in OpenKruise 1.4 to
// 1.8; its own entry goes before AllAlpha.
func terminatorGate(containers []corev1.Container) bool {
	gates := map[string]bool{}
	for _, container := range containers {
		arguments := slices.Concat(container.Command, container.Args)
		for i, argument := range arguments {
			name, value, ok := strings.Cut(strings.TrimLeft(argument, "-"), "=")
			if name != "feature-gates" {
				continue
			}
			if !ok && i+1 < len(arguments) {
				value = arguments[i+1]
			}
			for gate := range strings.SplitSeq(value, ",") {
				key, state, _ := strings.Cut(strings.TrimSpace(gate), "=")
				gates[key], _ = strconv.ParseBool(state)
			}
		}
	}
	if on, set := gates["SidecarTerminator"]; set {
		return on
	}
	return gates["AllAlpha"]
}

// firstOf names a few of many.
func firstOf(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
