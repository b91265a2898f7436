// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/explain"
)

// The leader renews its lease every two seconds. Other replicas try to acquire it at least every four seconds.
const (
	leaseInterval = 500 * time.Millisecond
	leaseTimeout  = 6 * time.Second
)

// lease checks that a replica of the operator is the leader.
func (c *checker) lease(ctx context.Context, deployment *appsv1.Deployment) error {
	c.name = "Lease"
	if c.settings.Lease.Name == "" {
		c.warn("if this is not intended: "+c.installer.set("--leader-elect=true"), "the operator runs without leader election, so every replica acts")
		return nil
	}
	key := client.ObjectKey{Namespace: c.leaseNamespace(deployment), Name: c.settings.Lease.Name}
	lease, held, err := c.awaitLeader(ctx, key)
	hint := fmt.Sprintf("find the cause: kubectl logs -n %s deployment/%s", deployment.Namespace, deployment.Name)
	switch {
	case c.unreadable(err, "leases in namespace "+key.Namespace):
	case err != nil:
		return fmt.Errorf("get lease %s: %w", key, err)
	case lease == nil:
		c.fail(hint, "the operator has no leader: lease %s not found", key)
	case leaderOf(lease) == "":
		c.fail(hint, "the operator has no leader: lease %s has no holder", key)
	case !held:
		c.fail(hint, "the operator has no leader: %s holds lease %s but last renewed it %s ago", leaderOf(lease), key, c.renewalAge(lease))
	default:
		c.ok("%s is the leader: it holds lease %s, renewed %s ago", leaderOf(lease), key, c.renewalAge(lease))
	}
	return nil
}

// leaseNamespace is the namespace of the operator's lease.
func (c *checker) leaseNamespace(deployment *appsv1.Deployment) string {
	return cmp.Or(c.settings.Lease.Namespace, deployment.Namespace)
}

// awaitLeader returns the lease, or nil, and whether a replica holds it. New replicas acquire the lease within seconds. A lease
// that is renewed meanwhile is held even if it looks expired: the clocks of this machine and the cluster may differ.
func (c *checker) awaitLeader(ctx context.Context, key client.ObjectKey) (lease *coordinationv1.Lease, held bool, err error) {
	// Use the outer context, so that the timeout does not interrupt a read.
	err = wait.PollUntilContextTimeout(ctx, leaseInterval, leaseTimeout, true, func(context.Context) (bool, error) {
		found := &coordinationv1.Lease{}
		if err := c.client.Get(ctx, key, found); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		held = leaderOf(found) != "" && (!isExpired(found, c.now()) || isRenewed(lease, found))
		lease = found
		return held, nil
	})
	if wait.Interrupted(err) {
		// A timeout is a result: no replica acquired the lease.
		err = ctx.Err()
	}
	return lease, held, err
}

// leaderOf is the host name of the lease's holder, which is the pod's name. The rest of the identity is random.
func leaderOf(lease *coordinationv1.Lease) string {
	host, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	return host
}

// isExpired reports whether the lease duration has passed since the last renewal.
func isExpired(lease *coordinationv1.Lease, now time.Time) bool {
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return lease.Spec.RenewTime == nil || now.Sub(lease.Spec.RenewTime.Time) > duration
}

// isRenewed reports whether the lease was renewed between two reads. The first read has no predecessor.
func isRenewed(before, after *coordinationv1.Lease) bool {
	return before != nil && !after.Spec.RenewTime.Equal(before.Spec.RenewTime)
}

func (c *checker) renewalAge(lease *coordinationv1.Lease) string {
	return explain.Age(c.now().Sub(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time))
}
