// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/shipped"
)

// checkAdmission finds admission policies that are missing, have been changed or do not apply to the operator. It sets authorsCheckedSince
// for the check that follows.
func (c *checker) checkAdmission(ctx context.Context) error {
	policies, err := shipped.AdmissionPolicies(c.settings.Capabilities) // that the operator needs by its flags
	if err != nil {
		return err
	}
	c.authorsCheckedSince = map[string]time.Time{}
	states := map[string]shipped.State{}
	asShipped, needed := 0, len(policies)
	for _, policy := range policies {
		status, created, err := observe.AdmissionPolicy(ctx, c.Client, policy, c.installation())
		if c.unreadable(err, "admission policies") {
			return nil
		}
		if err != nil {
			return err
		}
		states[policy.Name] = status.State
		c.reportAdmission(policy, status)
		switch status.State {
		case shipped.Present:
			asShipped++
		case shipped.NotServed:
			needed--
		case shipped.Missing, shipped.Changed, shipped.BeingDeleted, shipped.Unknown:
		}
		if strings.HasPrefix(policy.Name, shipped.AuthorsPrefix) && status.State != shipped.Missing && status.State != shipped.NotServed {
			c.authorsCheckedSince[policy.Name] = created
		}
	}
	if asShipped == needed {
		c.ok("all %d admission policies are installed, as this version ships them: they limit the operator and the authors of policies", asShipped)
	}
	if shipped.Unguarded(states) && !c.settings.Capabilities.NamespacesOnly {
		install, _ := c.admissionCommands(shipped.AdmissionPolicy{Name: shipped.PhasePolicy})
		c.fail("install the second: "+install, "neither admission policy %s nor %s is at work: a kubelet may take back the outcome of a pod",
			c.installedName(shipped.OutcomePolicy), c.installedName(shipped.PhasePolicy))
	}
	return nil
}

// admissionCommands returns how to install an admission policy, and how to replace a changed one. Installations for single namespaces have
// none: an administrator of the cluster applies the file.
func (c *checker) admissionCommands(policy shipped.AdmissionPolicy) (install, restore string) {
	value := "admissionPolicies.enabled=true"
	if policy.Name == shipped.OutcomePolicy {
		value = "admissionPolicies.outcome=Enabled"
	}
	switch {
	case !c.readsCluster():
		return kubectl("apply --server-side", policy.File()), kubectl("replace", policy.File())
	case c.release() == "" && c.installedName(policy.Name) != policy.Name:
		return c.reinstall(), c.reinstall()
	}
	return c.apply(policy.File(), value), c.restore(policy.File(), value)
}

// reportAdmission warns of an admission policy that is not as shipped.
func (c *checker) reportAdmission(policy shipped.AdmissionPolicy, status shipped.Status) {
	name := c.installedName(policy.Name)
	install, restore := c.admissionCommands(policy)
	switch status.State {
	case shipped.NotServed:
		c.ok("this version of Kubernetes has no MutatingAdmissionPolicies: the operator decides the outcome of pods, while it runs. From 1.36 on, "+
			"admission policy %s does; install it after an upgrade", name)
		return
	case shipped.Missing:
		c.warn("install it: "+install, "admission policy %s is missing: %s", name, policy.Effect)
		return
	case shipped.BeingDeleted:
		c.warn("find out who deletes it and what its finalizers wait for. When it is gone, install it: "+install,
			"admission policy %s is being deleted. Without it, %s", name, policy.Effect)
	}
	if len(status.Differences) > 0 {
		c.warn("if this is not intended, restore it: "+restore,
			"admission policy %s is not as this version ships it: %s", name, firstOf(status.Differences))
	}
	if status.OtherAccount {
		account := c.account()
		hint := fmt.Sprintf("if this is not intended: kubectl set serviceaccount deployment/%s %s -n %s", c.deployment.Name, c.deployment.Name, c.deployment.Namespace)
		if c.release() != "" {
			hint = "name the account in the values: " + c.upgrade("serviceAccount.name="+account)
		}
		c.warn(hint, "admission policy %s does not apply to ServiceAccount %s, which runs the operator: %s", name, account, policy.Effect)
	}
}

// account is the name of the ServiceAccount that runs the operator.
func (c *checker) account() string {
	return cmp.Or(c.deployment.Spec.Template.Spec.ServiceAccountName, "default")
}

// installation says how names of the cluster differ from those of config/default.
func (c *checker) installation() shipped.Installation {
	if c.deployment == nil {
		return shipped.Installation{}
	}
	return shipped.Installation{Deployment: c.deployment.Name, Namespace: c.deployment.Namespace, Account: c.account()}
}

// installedName returns a name of config/default as it is in the cluster.
func (c *checker) installedName(name string) string { return c.installation().Name(name) }

// admissionLag is how long the API server may take to enforce a new admission policy.
const admissionLag = 5 * time.Second

// checkAuthors warns of enforced policies that are older than the admission policies for authors, so that nobody checked the
// permissions of their authors. Kubernetes does not record who wrote a policy.
func (c *checker) checkAuthors(context.Context) error {
	var unchecked []string
	total := 0
	for _, policy := range c.policies {
		if policy.Spec.Enforcement == v1alpha1.EnforcementDryRun {
			continue
		}
		total++
		if isUnchecked(policy, c.authorsCheckedSince) {
			title, _ := named(policy.Ref)
			unchecked = append(unchecked, title)
		}
	}
	switch {
	case len(unchecked) > 0:
		c.warn("review them: the permissions of their authors were never checked. To check one, let its author add a default to it, such as fallback: Enabled; a denied change leaves it as it is",
			"%d of %d enforced policies were last changed before the admission policies that check authors: %s", len(unchecked), total, firstOf(unchecked))
	case len(c.authorsCheckedSince) > 0 && total > 0:
		c.ok("%d of %d enforced policies passed the admission policies", total, total)
	}
	return nil
}

// isUnchecked reports whether the policy was last changed before an admission policy for its author was enforced.
func isUnchecked(policy explain.Policy, since map[string]time.Time) bool {
	changed := lastChanged(policy.Object)
	for name, created := range since {
		applies := name != shipped.AuthorsOfPrePull || policy.Spec.PrePull != nil
		if applies && changed.Before(created.Add(admissionLag)) {
			return true
		}
	}
	return false
}

// lastChanged returns the time of the last known write to the object's spec: its creation or the latest time in its managed
// fields. Admission policies check the whole spec on every change.
func lastChanged(object metav1.Object) time.Time {
	last := object.GetCreationTimestamp().Time
	for _, entry := range object.GetManagedFields() {
		var fields map[string]json.RawMessage
		if entry.Time == nil || entry.FieldsV1 == nil || entry.Subresource != "" || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, ofSpec := fields["f:spec"]; ofSpec && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}
