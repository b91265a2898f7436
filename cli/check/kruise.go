// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// The names in OpenKruise's chart and manifests.
const (
	kruiseManager = "kruise-controller-manager"
	kruiseDaemon  = "kruise-daemon"
)

func (c *checker) usesKruise() bool { return c.kruiseServed }

// checkKruise checks whether mode CRR is usable. It sets kruiseServed for the checks that follow.
func (c *checker) checkKruise(ctx context.Context) error {
	if !c.settings.Capabilities.CRR {
		c.ok("mode CRR is disabled, so the operator does not use OpenKruise")
		return nil
	}
	kruise, err := source.KruiseServes(ctx, c.Client)
	if err != nil {
		return err
	}
	if c.kruiseServed = kruise.Defined; !kruise.Defined {
		c.ok("OpenKruise is not installed: mode CRR is not usable, and Auto uses PodPhase on real nodes")
		return nil
	}
	c.ok("CRD %s is served", crr.DefinitionName)
	switch {
	case kruise.Note != "":
		c.warn("ask someone who may read them", "%s", kruise.Note)
	case kruise.Guarded:
		c.ok("%s guards CRRs (failurePolicy Fail)", crr.WebhookConfigurationName)
	default:
		c.warn("restore OpenKruise's webhook with failurePolicy Fail for containerrecreaterequests: without it a CRR could target containers of other pods",
			"%s does not guard CRRs, so mode CRR is not usable", crr.WebhookConfigurationName)
	}
	return nil
}

// checkKruiseDaemon finds real nodes without a ready daemon.
func (c *checker) checkKruiseDaemon(ctx context.Context) error {
	var nodes corev1.NodeList
	if ok, err := c.read(c.Client.List(ctx, &nodes), "nodes"); !ok {
		return err
	}
	var daemons appsv1.DaemonSetList
	if ok, err := c.read(c.Client.List(ctx, &daemons, client.MatchingFields{"metadata.name": kruiseDaemon}), "DaemonSets"); !ok {
		return err
	}
	if len(daemons.Items) == 0 {
		c.warn("run kruise-daemon on every node: on a node without it a CRR has no effect, and the operator falls back to the next mode",
			"DaemonSet %s not found", kruiseDaemon)
		return nil
	}
	namespace := daemons.Items[0].Namespace
	selector, err := metav1.LabelSelectorAsSelector(daemons.Items[0].Spec.Selector)
	if err != nil {
		return fmt.Errorf("parse the selector of DaemonSet %s: %w", kruiseDaemon, err)
	}
	var pods corev1.PodList
	if ok, err := c.read(c.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}), "pods in namespace "+namespace); !ok {
		return err
	}
	ready := map[string]bool{}
	for i := range pods.Items {
		for _, condition := range pods.Items[i].Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				ready[pods.Items[i].Spec.NodeName] = true
			}
		}
	}
	total := 0
	var without []string
	for i := range nodes.Items {
		if c.settings.NodeKindRules.Classify(&nodes.Items[i]) != plan.NodeReal {
			continue
		}
		if total++; !ready[nodes.Items[i].Name] {
			without = append(without, nodes.Items[i].Name)
		}
	}
	if len(without) > 0 {
		c.warn("find the cause: kubectl get pods -n "+namespace+" -o wide. On these nodes the operator falls back to another mode after the deadline",
			"%s is not ready on %d of %d real nodes: %s", kruiseDaemon, len(without), total, firstOf(without))
		return nil
	}
	c.ok("%s is ready on all %d real nodes", kruiseDaemon, total)
	return nil
}

// checkKruiseManager checks whether OpenKruise's own SidecarTerminator acts on the same environment variables.
func (c *checker) checkKruiseManager(ctx context.Context) error {
	if c.settings.Resolve.IgnoreEnv {
		c.ok("the operator ignores environment variables (--env-convention=Disabled), so OpenKruise's SidecarTerminator may use them")
		return nil
	}
	var deployments appsv1.DeploymentList
	if ok, err := c.read(c.Client.List(ctx, &deployments, client.MatchingFields{"metadata.name": kruiseManager}), "Deployments of all namespaces"); !ok {
		return err
	}
	switch {
	case len(deployments.Items) == 0:
		c.warn("run OpenKruise with --feature-gates=SidecarTerminator=false, or the operator with --env-convention=Disabled",
			"Deployment %s not found, so its feature gates are unknown", kruiseManager)
	case terminatorGate(deployments.Items[0].Spec.Template.Spec.Containers):
		c.warn("turn off its feature gate SidecarTerminator, or run the operator with --env-convention=Disabled",
			"OpenKruise's SidecarTerminator is on and acts on the same environment variables as the operator")
	default:
		c.ok("OpenKruise's SidecarTerminator is off")
	}
	return nil
}

// terminatorGate reports whether the feature gate SidecarTerminator is on. It is alpha and off by default in OpenKruise 1.4 to
// 1.8. Its own entry overrides AllAlpha.
func terminatorGate(containers []corev1.Container) bool {
	flags := pflag.NewFlagSet(kruiseManager, pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	values := flags.StringToString("feature-gates", nil, "")
	for _, container := range containers {
		// OpenKruise does not start with flags that cannot be parsed.
		_ = flags.Parse(slices.Concat(container.Command, container.Args))
	}
	gates := map[string]bool{}
	for gate, value := range *values {
		gates[strings.TrimSpace(gate)], _ = strconv.ParseBool(value)
	}
	if on, set := gates["SidecarTerminator"]; set {
		return on
	}
	return gates["AllAlpha"]
}
