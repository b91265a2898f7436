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

// modePolicyPrefix begins the names of the admission policies that ask authors of policies for rights.
const modePolicyPrefix = "sidecar-termination-mode-"

// admissionLag is how long the API server may take to act on an admission policy that has been created.
const admissionLag = 5 * time.Second

// authored is a policy and what is known of when it was written.
type authored struct {
	name    string
	object  metav1.Object
	prePull bool
}

// uncheckedPolicies warns of enforced policies that were last changed before the admission policies that ask their authors
// for rights. Who wrote a policy is not known afterwards, so that their rights cannot be looked at now. That policies or
// admission policies are missing or cannot be read is said by other checks.
func (c *checker) uncheckedPolicies(ctx context.Context) error {
	since, err := c.modePoliciesSince(ctx)
	if err != nil || len(since) == 0 {
		return err
	}
	policies, err := c.authored(ctx)
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
		c.warn("review them: nobody asked their authors for rights. To have one checked, its author replaces it: kubectl replace --force -f FILE",
			"%d of %d enforced policies were last changed before the admission policies that ask authors for rights: %s",
			len(unchecked), len(policies), firstOf(unchecked))
	case len(policies) > 0:
		c.ok("%d of %d enforced policies were written under the admission policies", len(policies), len(policies))
	}
	return nil
}

// modePoliciesSince returns since when the admission policies that ask for rights are there, by their names. What is not
// there, not needed or cannot be read is left out.
func (c *checker) modePoliciesSince(ctx context.Context) (map[string]time.Time, error) {
	since := map[string]time.Time{}
	for _, policy := range c.admissionPolicies() {
		if !policy.needed || !strings.HasPrefix(policy.name, modePolicyPrefix) {
			continue
		}
		created, err := c.created(ctx, policy.name)
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

// created returns when both the admission policy and its binding were there.
func (c *checker) created(ctx context.Context, name string) (time.Time, error) {
	var last time.Time
	for _, object := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
		if err := c.client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			return last, err
		}
		last = later(last, object.GetCreationTimestamp().Time)
	}
	return last, nil
}

// authored lists the policies that may need rights: all but those with enforcement DryRun.
func (c *checker) authored(ctx context.Context) ([]authored, error) {
	var namespaced v1alpha1.SidecarTerminationPolicyList
	if err := c.client.List(ctx, &namespaced); err != nil {
		return nil, err
	}
	var cluster v1alpha1.ClusterSidecarTerminationPolicyList
	if err := c.client.List(ctx, &cluster); err != nil {
		return nil, err
	}
	var all []authored
	add := func(name string, object metav1.Object, spec *v1alpha1.PolicySpec) {
		if spec.Enforcement != v1alpha1.EnforcementDryRun {
			all = append(all, authored{name, object, spec.PrePull != nil})
		}
	}
	for i := range namespaced.Items {
		p := &namespaced.Items[i]
		add("policy "+p.Namespace+"/"+p.Name, p, &p.Spec.PolicySpec)
	}
	for i := range cluster.Items {
		p := &cluster.Items[i]
		add("clusterpolicy "+p.Name, p, &p.Spec.PolicySpec)
	}
	return all, nil
}

// isUnchecked reports whether the policy was last changed before an admission policy acted that may ask for rights to it.
func (a authored) isUnchecked(since map[string]time.Time) bool {
	changed := lastChanged(a.object)
	for name, created := range since {
		if (a.prePull || name != modePolicyPrefix+"pre-pull") && changed.Before(created.Add(admissionLag)) {
			return true
		}
	}
	return false
}

// lastChanged returns when the object's spec was last written, as far as it is known: not before the object was created, and
// as its managed fields say. Admission policies look at the whole spec whenever some of it changes.
func lastChanged(object metav1.Object) time.Time {
	last := object.GetCreationTimestamp().Time
	for _, entry := range object.GetManagedFields() {
		var fields map[string]json.RawMessage
		if entry.Time == nil || entry.FieldsV1 == nil || entry.Subresource != "" || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, ofSpec := fields["f:spec"]; ofSpec {
			last = later(last, entry.Time.Time)
		}
	}
	return last
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
