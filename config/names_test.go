// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/shipped"
)

// Alerts, denials and references name nothing that has another name in this installation. The limits of the operator match a part of the
// name of its account.
func TestTextsNameNothingThatIsRenamed(t *testing.T) {
	components := slices.DeleteFunc(operatorComponents(t), func(name string) bool { return strings.HasPrefix(name, "no-") })
	everything := operatorWith(components...)
	rendered := renderOverlay(t, "namePrefix: team-a-\nnameSuffix: -v2\nnamespace: elsewhere\n"+everything)
	names := []string{namespace}
	for _, object := range renderOverlay(t, everything) {
		// The PrometheusRule has the name of the program.
		if name := object.GetName(); name != settings.Name && !rendered.has(object.GetKind(), name) {
			names = append(names, regexp.QuoteMeta(name))
		}
	}
	reference := regexp.MustCompile(`(^|[^-\w*])(` + strings.Join(names, "|") + `)($|[^-\w])`)
	for _, object := range rendered {
		content, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range reference.FindAllStringSubmatch(string(content), -1) {
			t.Errorf("%s %s names %s", object.GetKind(), object.GetName(), found[2])
		}
	}
}

// Users may rename the whole installation. The operator and the plugin then find its admission policies under their new names.
func TestRenamedAdmissionPoliciesAreAsShipped(t *testing.T) {
	const renamed = "team-a-" + deployment + "-v2"
	rendered := renderOverlay(t, "namePrefix: team-a-\nnameSuffix: -v2\nresources: [CONFIG/default]")
	in := shipped.Installation{Deployment: renamed, Namespace: namespace, Account: renamed}
	policies, err := shipped.AdmissionPolicies(plan.Capabilities{EnabledModes: podtest.Modes(plan.PodPhaseEnabled)})
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range policies {
		objects := policy.Objects(in)
		for i, object := range objects {
			n := slices.IndexFunc(rendered, func(r unstructured.Unstructured) bool {
				return r.GetKind() == object.GetKind() && r.GetName() == object.GetName()
			})
			if n < 0 {
				t.Fatalf("no %s %s", object.GetKind(), object.GetName())
			}
			objects[i] = &rendered[n]
		}
		if diff := cmp.Diff(shipped.Status{State: shipped.Present}, policy.Compare(in, objects)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", policy.Name, diff)
		}
	}
}
