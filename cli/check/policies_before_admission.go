// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// modePolicyPrefix is the prefix of the admission policies that check the permissions of policy authors.
const modePolicyPrefix = "sidecar-termination-mode-"

// admissionLag is how long the API server may take to enforce a new admission policy.
const admissionLag = 5 * time.Second

// writtenPolicy is an enforced policy.
type writtenPolicy struct {
	name    string
	object  metav1.Object
	prePull bool
}

// uncheckedPolicies warns of enforced policies that are older than the admission policies, so that nobody checked the
// permissions of their authors. Kubernetes does not record who wrote a policy. Other checks report missing policies and
// admission policies.
func (c *checker) uncheckedPolicies(ctx context.Context) error {
	c.name = "PolicyAuthors"
	since, err := c.modePolicyTimes(ctx)
	if err != nil || len(since) == 0 {
		return err
	}
	policies, err := c.writtenPolicies(ctx)
	switch {
	case apierrors.IsForbidden(err), meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("list policies: %w", err)
	}
	var unchecked []string
	for _, policy := range policies {
		if policy.isUnchecked(since) {
			unchecked = append(unchecked, policy.name)
		}
	}
	switch {
	case len(unchecked) > 0:
		c.warn("review them: the permissions of their authors were never checked. To check one, let its author replace it: kubectl replace --force -f FILE",
			"%d of %d enforced policies were last changed before the admission policies that check authors: %s",
			len(unchecked), len(policies), firstOf(unchecked))
	case len(policies) > 0:
		c.ok("%d of %d enforced policies passed the admission policies", len(policies), len(policies))
	}
	return nil
}

// modePolicyTimes returns the creation times of the admission policies for authors by name. It omits missing, unneeded and
// unreadable ones.
func (c *checker) modePolicyTimes(ctx context.Context) (map[string]time.Time, error) {
	since := map[string]time.Time{}
	for _, policy := range c.admissionPolicies() {
		if !policy.needed || !strings.HasPrefix(policy.name, modePolicyPrefix) {
			continue
		}
		created, err := c.createdAt(ctx, c.installedName(policy.name))
		switch {
		case apierrors.IsForbidden(err):
			return nil, nil
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("get admission policy %s: %w", policy.name, err)
		}
		since[policy.name] = created
	}
	return since, nil
}

// createdAt returns the time when both the admission policy and its binding existed.
func (c *checker) createdAt(ctx context.Context, name string) (time.Time, error) {
	var last time.Time
	for _, object := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
		if err := c.client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			return last, err
		}
		if created := object.GetCreationTimestamp(); created.After(last) {
			last = created.Time
		}
	}
	return last, nil
}

// writtenPolicies lists the policies whose authors need permissions: all policies without enforcement DryRun.
func (c *checker) writtenPolicies(ctx context.Context) ([]writtenPolicy, error) {
	namespaced, cluster, err := c.listPolicies(ctx)
	if err != nil {
		return nil, err
	}
	var all []writtenPolicy
	add := func(name string, object metav1.Object, spec *v1alpha1.PolicySpec) {
		if spec.Enforcement != v1alpha1.EnforcementDryRun {
			all = append(all, writtenPolicy{name, object, spec.PrePull != nil})
		}
	}
	for i := range namespaced {
		p := &namespaced[i]
		add("policy "+p.Namespace+"/"+p.Name, p, &p.Spec.PolicySpec)
	}
	for i := range cluster {
		p := &cluster[i]
		add("clusterpolicy "+p.Name, p, &p.Spec.PolicySpec)
	}
	return all, nil
}

// isUnchecked reports whether the policy was last changed before an admission policy for it was enforced.
func (a writtenPolicy) isUnchecked(since map[string]time.Time) bool {
	changed := lastChanged(a.object)
	for name, created := range since {
		if (a.prePull || name != modePolicyPrefix+"pre-pull") && changed.Before(created.Add(admissionLag)) {
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
