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
	"github.com/sidecar-termination/operator/internal/settings"
)

// outcomePolicy is the admission policy that decides the outcome of pods, and authorsPrefix the prefix of those that check the
// permissions of policy authors. authorsOfPrePull is one of them.
const (
	outcomePolicy    = "sidecar-termination-outcome"
	authorsPrefix    = "sidecar-termination-mode-"
	authorsOfPrePull = authorsPrefix + "pre-pull"
)

// admissionPolicy is an admission policy of the installation. Its binding has the same name.
type admissionPolicy struct {
	name, missing string // missing is the effect of its absence
	needed        bool   // by the operator's flags
}

// admissionPolicies are the policies in config/admission. A test compares them.
func (c *checker) admissionPolicies() []admissionPolicy {
	enabled := c.settings.Capabilities.EnabledModes
	podPhase := enabled.Enabled(v1alpha1.ModePodPhase)
	return []admissionPolicy{
		{outcomePolicy, "exit codes of sidecars count as in Kubernetes, and mode PodPhase cannot be used; it needs Kubernetes 1.36", true},
		{"sidecar-termination-operator-limits", "only RBAC limits what the operator's ServiceAccount can do to pods", true},
		{"sidecar-termination-operator-requests",
			"only RBAC limits which CRRs and ImagePullJobs the operator's ServiceAccount can create and delete", enabled.CRR || enabled.PrePull},
		{authorsPrefix + "crr", "anyone who may write policies can stop containers", enabled.CRR},
		{authorsPrefix + "image", "anyone who may write policies can change images of pods", enabled.Image},
		{authorsPrefix + "pod-phase", "anyone who may write policies can end pods", podPhase},
		{authorsOfPrePull, "anyone who may write policies can pull images to nodes", enabled.PrePull},
	}
}

// checkAdmission finds missing admission policies. It sets admissionSince for the checks that follow.
func (c *checker) checkAdmission(ctx context.Context) error {
	since, total := map[string]time.Time{}, 0
	for _, policy := range c.admissionPolicies() {
		if !policy.needed {
			continue
		}
		total++
		name := c.installedName(policy.name)
		created, err := c.createdAt(ctx, name, policy.name == outcomePolicy)
		switch {
		case c.unreadable(err, "admission policies"):
			return nil
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			c.warn("install it: "+c.apply("admission", "admissionPolicies.enabled=true"), "admission policy %s is missing: %s", name, policy.missing)
		case err != nil:
			return fmt.Errorf("get admission policy %s: %w", name, err)
		default:
			since[policy.name] = created
		}
	}
	if c.admissionSince = since; len(since) == total {
		c.ok("all %d admission policies are installed: they limit the operator and the authors of policies", total)
	}
	return nil
}

// createdAt returns the time when both the admission policy and its binding existed.
func (c *checker) createdAt(ctx context.Context, name string, mutating bool) (last time.Time, err error) {
	objects := []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}}
	if mutating {
		objects = []client.Object{&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}}
	}
	for _, object := range objects {
		if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			return last, err
		}
		if created := object.GetCreationTimestamp(); created.After(last) {
			last = created.Time
		}
	}
	return last, nil
}

// installedName returns a name of config/default as it is in the cluster. A Helm release, and namePrefix and nameSuffix of
// kustomize, may change what names begin and end with.
func (c *checker) installedName(name string) string {
	const role = "-controller-manager"
	if c.deployment == nil {
		return name
	}
	if prefix, suffix, ok := strings.Cut(c.deployment.Name, role); ok {
		return prefix + strings.TrimPrefix(name, strings.TrimSuffix(settings.DeploymentName, role)) + suffix
	}
	return name
}

// admissionLag is how long the API server may take to enforce a new admission policy.
const admissionLag = 5 * time.Second

// checkAuthors warns of enforced policies that are older than the admission policies for authors, so that nobody checked the
// permissions of their authors. Kubernetes does not record who wrote a policy.
func (c *checker) checkAuthors(context.Context) error {
	var unchecked []string
	total := 0
	for _, policy := range c.policies {
		if policy.spec.Enforcement == v1alpha1.EnforcementDryRun {
			continue
		}
		total++
		if isUnchecked(policy, c.admissionSince) {
			unchecked = append(unchecked, policy.title)
		}
	}
	known := false
	for name := range c.admissionSince {
		known = known || strings.HasPrefix(name, authorsPrefix)
	}
	switch {
	case len(unchecked) > 0:
		c.warn("review them: the permissions of their authors were never checked. To check one, let its author replace it: kubectl replace --force -f FILE",
			"%d of %d enforced policies were last changed before the admission policies that check authors: %s", len(unchecked), total, firstOf(unchecked))
	case known && total > 0:
		c.ok("%d of %d enforced policies passed the admission policies", total, total)
	}
	return nil
}

// isUnchecked reports whether the policy was last changed before an admission policy for its author was enforced.
func isUnchecked(policy policy, since map[string]time.Time) bool {
	changed := lastChanged(policy.object)
	for name, created := range since {
		applies := strings.HasPrefix(name, authorsPrefix) && (name != authorsOfPrePull || policy.spec.PrePull != nil)
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
