// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// render returns the objects of a kustomization of config.
func render(t *testing.T, directory string) []*resource.Resource {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/"+directory)
	if err != nil {
		t.Fatal(err)
	}
	return rendered.Resources()
}

func TestEveryAdmissionPolicyIsChecked(t *testing.T) {
	want := map[string][]string{}
	for _, object := range render(t, "admission") {
		want[object.GetKind()] = append(want[object.GetKind()], object.GetName())
	}
	var got, needed []string
	for _, policy := range (&checker{}).admissionPolicies() {
		got = append(got, policy.name)
		if policy.needed {
			needed = append(needed, policy.name)
		}
	}
	slices.Sort(got)
	// A policy without a binding has no effect. Both have the same name.
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		names := want[kind]
		slices.Sort(names)
		if difference := cmp.Diff(names, got); difference != "" {
			t.Errorf("%s (-installed +checked):\n%s", kind, difference)
		}
	}
	if difference := cmp.Diff([]string{"sidecar-termination-operator-limits"}, needed); difference != "" {
		t.Errorf("needed without any mode (-want +got):\n%s", difference)
	}
}

func TestNamesOfAnotherInstallation(t *testing.T) {
	for deployment, want := range map[string]string{
		"team-a-sidecar-termination-controller-manager":    "team-a-sidecar-termination-operator-limits",
		"acme-sidecar-termination-controller-manager-blue": "acme-sidecar-termination-operator-limits-blue",
		"sidecar-termination-controller-manager":           "sidecar-termination-operator-limits",
		"custom":                                           "sidecar-termination-operator-limits",
	} {
		c := &checker{deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: deployment}}}
		if got := c.installedName("sidecar-termination-operator-limits"); got != want {
			t.Errorf("%s: got %s, want %s", deployment, got, want)
		}
	}
}

func TestStabilizationWindowFitsThePhaseGuard(t *testing.T) {
	for name, tc := range map[string]struct {
		guarded bool
		window  time.Duration
		want    outcome
	}{
		"guard, no wait":         {true, 0, outcomeOK},
		"guard, wait":            {true, 1500 * time.Millisecond, outcomeWarning},
		"no guard, wait":         {false, 1500 * time.Millisecond, outcomeOK},
		"no guard, shorter wait": {false, time.Second, outcomeWarning},
		"no guard, no wait":      {false, 0, outcomeWarning},
	} {
		c := &checker{admissionSince: map[string]time.Time{}}
		if tc.guarded {
			c.admissionSince[phaseGuard] = time.Time{}
		}
		c.settings.StabilizationWindow = tc.window
		if err := c.checkWindow(t.Context()); err != nil || c.results[0].Outcome != tc.want {
			t.Errorf("%s: got %v, %+v, want outcome %v", name, err, c.results, tc.want)
		}
	}
}

func TestUncheckedPolicies(t *testing.T) {
	installed := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	written := func(after time.Duration, subresource, fields string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(installed.Add(after))
		return metav1.ManagedFieldsEntry{Time: &at, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const spec, status, labels = `{"f:spec":{"f:mode":{}}}`, `{"f:status":{}}`, `{"f:metadata":{"f:labels":{"f:spec":{}}}}`
	since := map[string]time.Time{authorsPrefix + "crr": installed, authorsOfPrePull: installed.Add(time.Hour), phaseGuard: installed.Add(time.Hour)}
	for name, tc := range map[string]struct {
		created time.Duration
		fields  []metav1.ManagedFieldsEntry
		prePull *v1alpha1.PrePull
		want    bool
	}{
		"created before":                      {created: -time.Minute, want: true},
		"created in the same second":          {created: 0, want: true},
		"created before they were enforced":   {created: 4 * time.Second, want: true},
		"created after":                       {created: time.Minute, want: false},
		"spec changed after":                  {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "", spec)}, want: false},
		"spec last changed after":             {created: -time.Hour, fields: []metav1.ManagedFieldsEntry{written(-time.Minute, "", spec), written(time.Minute, "", spec)}, want: false},
		"only status changed after":           {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "status", status)}, want: true},
		"only labels changed after":           {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "", labels)}, want: true},
		"invalid managed fields":              {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "", "{")}, want: true},
		"prePull before its admission policy": {created: time.Minute, prePull: &v1alpha1.PrePull{}, want: true},
		"prePull after its admission policy":  {created: 2 * time.Hour, prePull: &v1alpha1.PrePull{}, want: false},
	} {
		object := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{
			CreationTimestamp: metav1.NewTime(installed.Add(tc.created)), ManagedFields: tc.fields,
		}}
		if got := isUnchecked(policy{object: object, spec: &v1alpha1.PolicySpec{PrePull: tc.prePull}}, since); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
