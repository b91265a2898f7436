// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/config"
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

// checkAdmission finds admission policies that are missing or have been changed. It sets admissionSince for the checks that follow.
func (c *checker) checkAdmission(ctx context.Context) error {
	shipped, err := config.AdmissionPolicies()
	if err != nil {
		return err
	}
	since, total, changed := map[string]time.Time{}, 0, 0
	for _, policy := range c.admissionPolicies() {
		if !policy.needed {
			continue
		}
		total++
		name := c.installedName(policy.name)
		created, changes, err := c.compare(ctx, policy.name, shipped)
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
		if len(changes) > 0 {
			changed++
			c.warn("if this is not intended, restore it: "+c.apply("admission", "admissionPolicies.enabled=true"),
				"admission policy %s is not as this version ships it: %s", name, firstOf(changes))
		}
	}
	if c.admissionSince = since; len(since) == total && changed == 0 {
		c.ok("all %d admission policies are installed, as this version ships them: they limit the operator and the authors of policies", total)
	}
	return nil
}

// compare returns when both the admission policy and its binding existed, and their fields that differ from what this version ships.
func (c *checker) compare(ctx context.Context, policy string, shipped []unstructured.Unstructured) (last time.Time, changes []string, err error) {
	for i := range shipped {
		if shipped[i].GetName() != policy {
			continue
		}
		installed := &unstructured.Unstructured{}
		installed.SetGroupVersionKind(shipped[i].GroupVersionKind())
		if err := c.Client.Get(ctx, client.ObjectKey{Name: c.installedName(policy)}, installed); err != nil {
			return last, nil, err
		}
		if created := installed.GetCreationTimestamp(); created.After(last) {
			last = created.Time
		}
		for _, field := range c.differences("spec", shipped[i].Object["spec"], installed.Object["spec"]) {
			changes = append(changes, installed.GetKind()+" "+field)
		}
	}
	return last, changes, nil
}

// defaults are the values that the API server sets in admission policies.
var defaults = map[string]any{
	"matchPolicy": "Equivalent", "namespaceSelector": map[string]any{}, "objectSelector": map[string]any{}, "scope": "*",
}

// differences lists the fields in which the installed value differs from the shipped one.
func (c *checker) differences(path string, shipped, installed any) []string {
	var all []string
	switch shipped := shipped.(type) {
	case map[string]any:
		fields, _ := installed.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if _, given := shipped[key]; !given && !reflect.DeepEqual(fields[key], defaults[key]) {
				all = append(all, path+"."+key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(shipped)) {
			all = append(all, c.differences(path+"."+key, shipped[key], fields[key])...)
		}
		return all
	case []any:
		items, _ := installed.([]any)
		if len(items) != len(shipped) {
			return []string{path}
		}
		for i := range shipped {
			all = append(all, c.differences(fmt.Sprintf("%s[%d]", path, i), shipped[i], items[i])...)
		}
		return all
	case string:
		text, ok := installed.(string)
		// Tools fold long expressions differently.
		same := slices.Equal(strings.Fields(c.shippedNames(text)), strings.Fields(shipped)) || text == c.installedName(shipped)
		if ok && same {
			return nil
		}
	default:
		if reflect.DeepEqual(shipped, installed) {
			return nil
		}
	}
	return []string{path}
}

// shippedNames returns a text of the installation with the names of config/default, which the chart replaces.
func (c *checker) shippedNames(text string) string {
	if c.deployment == nil {
		return text
	}
	// The chart may use another service account, whose name stands in a pattern.
	pattern := func(account string) string { return "[^:]*" + account + "[^:]*" }
	text = strings.ReplaceAll(text, pattern(c.deployment.Spec.Template.Spec.ServiceAccountName), pattern(settings.DeploymentName))
	prefix, _, _ := strings.Cut(c.deployment.Name, controllerManager)
	return strings.ReplaceAll(text, prefix+"-", strings.TrimSuffix(settings.DeploymentName, controllerManager)+"-")
}

// controllerManager is what the name of the operator's Deployment has in every installation.
const controllerManager = "-controller-manager"

// installedName returns a name of config/default as it is in the cluster. A Helm release, and namePrefix and nameSuffix of
// kustomize, may change what names begin and end with.
func (c *checker) installedName(name string) string {
	if c.deployment == nil {
		return name
	}
	if prefix, suffix, ok := strings.Cut(c.deployment.Name, controllerManager); ok {
		return prefix + strings.TrimPrefix(name, strings.TrimSuffix(settings.DeploymentName, controllerManager)) + suffix
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
