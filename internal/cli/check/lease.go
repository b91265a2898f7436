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

// The leader renews its lease every two seconds, and another copy tries to take it every four at the latest.
const (
	leaseInterval = 500 * time.Millisecond
	leasePatience = 6 * time.Second
)

// lease says which copy of the operator acts.
func (c *checker) lease(ctx context.Context, deployment *appsv1.Deployment) error {
	if c.settings.Lease.Name == "" {
		c.warn("this is a choice; to undo it set --leader-elect", "the operator runs without a lease, so that each of its copies acts")
		return nil
	}
	key := client.ObjectKey{Namespace: c.leaseNamespace(deployment), Name: c.settings.Lease.Name}
	lease, held, err := c.awaitLeader(ctx, key)
	hint := fmt.Sprintf("see why: kubectl logs -n %s deployment/%s", deployment.Namespace, deployment.Name)
	switch {
	case c.unreadable(err, "leases in namespace "+key.Namespace):
	case err != nil:
		return fmt.Errorf("get lease %s: %w", key, err)
	case lease == nil:
		c.fail(hint, "no copy of the operator acts: there is no lease %s", key)
	case leaderOf(lease) == "":
		c.fail(hint, "no copy of the operator acts: nobody holds lease %s", key)
	case !held:
		c.fail(hint, "no copy of the operator acts: %s holds lease %s, and renewed it last %s ago", leaderOf(lease), key, c.sinceRenewal(lease))
	default:
		c.ok("%s acts: it holds lease %s, renewed %s ago", leaderOf(lease), key, c.sinceRenewal(lease))
	}
	return nil
}

// leaseNamespace is where the lease of the Deployment's copies is.
func (c *checker) leaseNamespace(deployment *appsv1.Deployment) string {
	return cmp.Or(c.settings.Lease.Namespace, deployment.Namespace)
}

// awaitLeader returns the lease, nil if there is none, and whether a copy holds it. Copies that have just started take it
// within seconds. A lease that is renewed meanwhile is held whatever its time is: the clocks of this machine and of the
// cluster may differ.
func (c *checker) awaitLeader(ctx context.Context, key client.ObjectKey) (lease *coordinationv1.Lease, held bool, err error) {
	// A read that has begun is finished: by the poll's own context it would fail when the time is nearly over.
	err = wait.PollUntilContextTimeout(ctx, leaseInterval, leasePatience, true, func(context.Context) (bool, error) {
		found := &coordinationv1.Lease{}
		if err := c.client.Get(ctx, key, found); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		held = leaderOf(found) != "" && (!isExpired(found, c.now()) || isRenewed(lease, found))
		lease = found
		return held, nil
	})
	if wait.Interrupted(err) {
		// That nobody took it in time is what was to be found out.
		err = ctx.Err()
	}
	return lease, held, err
}

// leaderOf is the copy that holds the lease: its host name, which for a pod is its own. The rest tells copies of one host apart.
func leaderOf(lease *coordinationv1.Lease) string {
	host, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	return host
}

// isExpired reports whether the lease was last renewed longer ago than it lasts.
func isExpired(lease *coordinationv1.Lease, now time.Time) bool {
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return lease.Spec.RenewTime == nil || now.Sub(lease.Spec.RenewTime.Time) > lasts
}

// isRenewed reports whether the lease was renewed between two reads; before the first one there is nil.
func isRenewed(before, after *coordinationv1.Lease) bool {
	return before != nil && !after.Spec.RenewTime.Equal(before.Spec.RenewTime)
}

func (c *checker) sinceRenewal(lease *coordinationv1.Lease) string {
	return explain.Age(c.now().Sub(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time))
}
