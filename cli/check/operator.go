// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

func (c *checker) checkDeployment(context.Context) error {
	if c.unreadable(c.deploymentError, "Deployments in "+c.operator.Where) {
		return nil
	}
	if c.deployment == nil {
		c.fail("install the operator: "+c.apply("default")+", or install its Helm chart",
			"no operator found in %s", c.operator.Where)
		return nil
	}
	if len(c.operator.Others) > 0 {
		c.warn("choose one with --operator-namespace", "operators were also found in these namespaces: %s; this report is on the one in namespace %s",
			firstOf(c.operator.Others), c.deployment.Namespace)
	}
	if c.deployment.Namespace != settings.Namespace && c.connection.OperatorNamespace == "" {
		c.ok("for the flags of this operator, other commands need --operator-namespace %s", c.deployment.Namespace)
	}
	name := c.deployment.Namespace + "/" + c.deployment.Name
	cause := "find the cause: kubectl describe pods -n " + c.deployment.Namespace
	wanted := ptr.Deref(c.deployment.Spec.Replicas, 1)
	switch ready := c.deployment.Status.ReadyReplicas; {
	case wanted == 0:
		hint := "kubectl scale deployment/" + c.deployment.Name + " -n " + c.deployment.Namespace + " --replicas=2"
		if c.release() != "" {
			hint = c.upgrade("replicas=2")
		}
		c.fail(hint, "Deployment %s is scaled to 0", name)
	case ready == 0:
		c.fail(cause, "Deployment %s has 0 of %d ready pods", name, wanted)
	case ready < wanted:
		c.warn(cause, "Deployment %s has %d of %d ready pods", name, ready, wanted)
	default:
		c.ok("Deployment %s is ready (%d of %d), image %s", name, ready, wanted, source.OperatorImage(c.deployment))
	}
	return nil
}

const versionHint = "use the command line of the operator's version: other versions may decide differently"

// commit matches the commit at the end of a version or an image tag, such as v0.0.0-20260301120000-589d0926f3a1 or sha-589d092.
var commit = regexp.MustCompile(`(?:^|-)g?([0-9a-f]{7,40})$`)

// checkVersion compares the builds of the operator and of this program: their versions, or their commits. The tag of an image is all
// that the operator says of its build.
func (c *checker) checkVersion(context.Context) error {
	image := source.OperatorImage(c.deployment)
	version := source.VersionOf(image)
	operatorCommit, programCommit := commit.FindStringSubmatch(source.TagOf(image)), commit.FindStringSubmatch(c.programVersion)
	switch {
	case version != "" && strings.TrimPrefix(version, "v") == strings.TrimPrefix(c.programVersion, "v"):
		c.ok("the operator and this program have version %s", version)
	case operatorCommit != nil && programCommit != nil && isSameCommit(operatorCommit[1], programCommit[1]):
		c.ok("the operator and this program are built from commit %s", operatorCommit[1])
	case version != "":
		c.warn(versionHint, "the operator has version %s, but this program has version %s", version, c.programVersion)
	case operatorCommit != nil && programCommit != nil:
		c.warn(versionHint, "the operator is built from commit %s, but this program is built from commit %s", operatorCommit[1], programCommit[1])
	default:
		c.warn(fmt.Sprintf("compare what both print: kubectl exec -n %s deployment/%s -c %s -- /%s --version; %s --version",
			c.deployment.Namespace, c.deployment.Name, settings.ContainerName, settings.Name, settings.PluginName),
			"cannot tell whether the operator and this program are the same build: the operator has image %s, and this program has version %s", image, c.programVersion)
	}
	return nil
}

// isSameCommit reports whether one commit abbreviates the other.
func isSameCommit(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

// checkFlags checks whether the operator can start with its flags, and which features they disable.
func (c *checker) checkFlags(context.Context) error {
	if c.flagsError != nil {
		edit := fmt.Sprintf("kubectl edit deployment/%s -n %s", c.deployment.Name, c.deployment.Namespace)
		if c.release() != "" {
			edit = c.upgrade("flags.FLAG=VALUE")
		}
		c.fail(fmt.Sprintf("correct them: %s. If the operator runs with them, %s", edit, versionHint),
			"the operator cannot start with its flags, so the other checks assume the defaults: %v", c.flagsError)
		return nil
	}
	if image := c.settings.Resolve.Image; image != "" {
		c.ok("the quick-exit image is %s", image)
	} else {
		c.warn("otherwise mode Image, the only mode on virtual nodes, needs an image in each policy: "+c.set("--quick-exit-image", "quickExitImage=IMAGE"),
			"no quick-exit image is set")
	}
	var allowed []string
	for _, entry := range c.settings.Capabilities.Images.Entries {
		allowed = append(allowed, entry.String())
	}
	if len(allowed) > 0 {
		c.ok("policies and variables may use the quick-exit images %s", strings.Join(allowed, ", "))
	}
	for _, feature := range settings.Features() {
		if !feature.Enabled(c.settings.Capabilities.EnabledModes) && (c.readsCluster() || !feature.OfCluster) {
			c.warn("if this is not intended: "+c.set("--"+feature.Flag+"=Enabled", feature.ChartValue+"=Enabled"), "%s is disabled", feature.Name)
		}
	}
	return nil
}

// checkNamespaces checks an operator for single namespaces: whether they exist, and what the operator does without.
func (c *checker) checkNamespaces(ctx context.Context) error {
	var missing []string
	for _, name := range c.settings.WatchNamespaces {
		err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil && !apierrors.IsForbidden(err):
			return fmt.Errorf("get namespace: %w", err)
		}
	}
	if len(missing) > 0 {
		c.warn("create them with the operator's roles, or correct --watch-namespaces", "the operator watches namespaces that do not exist: %s", firstOf(missing))
	}
	c.ok("the operator watches only %s; it uses neither cluster policies nor OpenKruise", strings.Join(c.settings.WatchNamespaces, ", "))
	if c.settings.NodeKindRules.All == plan.NodeNotRead {
		c.warn("if all nodes of their pods have a kubelet: "+c.set("--node-kind=Real"),
			"the operator may not read nodes and does not know their kind, so it uses only mode Image")
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	err := c.Client.List(ctx, &cluster)
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return fmt.Errorf("list cluster policies: %w", err)
	}
	var unread []string
	for i := range cluster.Items {
		unread = append(unread, cluster.Items[i].Name)
	}
	if len(unread) > 0 {
		c.warn("write a policy in each namespace, or install the operator for the whole cluster",
			"the operator does not read cluster policies, because it runs with --watch-namespaces: %s", firstOf(unread))
	}
	return nil
}

// firstOf lists the first names and counts the others.
func firstOf(names []string) string {
	const few = 5
	return safetext.List(names, few, ", ")
}

// checkMetrics checks who may read metrics.
func (c *checker) checkMetrics(context.Context) error {
	hint := c.set("--metrics-authentication=Enabled")
	if !c.readsCluster() {
		hint = "limit who can connect with a NetworkPolicy, or grant the operator create on tokenreviews and subjectaccessreviews and " + hint
	}
	switch metrics := c.settings.Metrics; {
	case metrics.Address == "":
		c.warn("without metrics there are no alerts on stuck pods: run it without --metrics-bind-address", "the operator serves no metrics")
	case !metrics.Authenticated:
		c.warn(hint, "metrics are served on %s without TLS and authentication", metrics.Address)
	default:
		c.ok("metrics are served on %s to users who may get /metrics", metrics.Address)
	}
	return nil
}

// The leader renews its lease every two seconds. Other replicas try to acquire it at least every four seconds.
const (
	leaseInterval = 500 * time.Millisecond
	leaseTimeout  = 6 * time.Second
)

// checkLease checks that a replica of the operator is the leader. New replicas acquire the lease within seconds.
func (c *checker) checkLease(ctx context.Context) error {
	if c.settings.Lease.Name == "" {
		c.warn("if this is not intended, run it with --leader-elect", "the operator runs without leader election, so every replica acts")
		return nil
	}
	key := client.ObjectKey{Namespace: c.leaseNamespace(), Name: c.settings.Lease.Name}
	var lease *coordinationv1.Lease
	held := false
	// Use the outer context, so that the timeout does not interrupt a read.
	err := wait.PollUntilContextTimeout(ctx, leaseInterval, leaseTimeout, true, func(context.Context) (bool, error) {
		before := lease
		lease = &coordinationv1.Lease{}
		err := c.Client.Get(ctx, key, lease)
		held = err == nil && isHeld(before, lease, c.now())
		return held, client.IgnoreNotFound(err)
	})
	hint := fmt.Sprintf("find the cause: kubectl logs -n %s deployment/%s", c.deployment.Namespace, c.deployment.Name)
	age := explain.Age(c.now().Sub(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.unreadable(err, "leases in namespace "+key.Namespace):
	case err != nil && !wait.Interrupted(err):
		return fmt.Errorf("get lease %s: %w", key, err)
	case lease.Name == "":
		c.fail(hint, "the operator has no leader: lease %s not found", key)
	case leaderOf(lease) == "":
		c.fail(hint, "the operator has no leader: lease %s has no holder", key)
	case !held:
		c.fail(hint, "the operator has no leader: %s holds lease %s but last renewed it %s ago", leaderOf(lease), key, age)
	default:
		c.ok("%s is the leader: it holds lease %s, renewed %s ago", leaderOf(lease), key, age)
	}
	return nil
}

// leaseNamespace is the namespace of the operator's lease.
func (c *checker) leaseNamespace() string {
	namespace := cmp.Or(c.connection.OperatorNamespace, settings.Namespace)
	if c.deployment != nil {
		namespace = c.deployment.Namespace
	}
	return cmp.Or(c.settings.Lease.Namespace, namespace)
}

// leaderOf is the host name of the lease's holder, which is the pod's name. The rest of the identity is random.
func leaderOf(lease *coordinationv1.Lease) string {
	host, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	return host
}

// isHeld reports whether a replica holds the lease: its duration has not passed, or it was renewed since it was read before. The
// second is true even if the clocks of this machine and the cluster differ.
func isHeld(before, lease *coordinationv1.Lease, now time.Time) bool {
	renewed := lease.Spec.RenewTime
	if leaderOf(lease) == "" || renewed == nil {
		return false
	}
	expires := renewed.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	return !now.After(expires) || before != nil && !renewed.Equal(before.Spec.RenewTime)
}
