// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// declarableModes are the modes of the CRD but Auto.
func declarableModes(t *testing.T) (modes []v1alpha1.Mode) {
	t.Helper()
	definitions, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	spec := definitions[slices.IndexFunc(definitions, func(d apiextensionsv1.CustomResourceDefinition) bool {
		return d.Spec.Names.Kind == "SidecarTerminationPolicy"
	})].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	for _, value := range spec.Properties["mode"].Enum {
		if mode := v1alpha1.Mode(strings.Trim(string(value.Raw), `"`)); mode != v1alpha1.ModeAuto {
			modes = append(modes, mode)
		}
	}
	if len(modes) == 0 {
		t.Fatal("the CRD has no modes")
	}
	return modes
}

// TestEachModeIsRegistered names the place that lacks a mode of the CRD. TestAutoTriesEachMode of package plan goes on from there.
func TestEachModeIsRegistered(t *testing.T) {
	features, modes := settings.Features(), declarableModes(t)
	if got := testutil.CollectAndCount(countedByMode("events", "")); got != len(modes) {
		t.Errorf("%d counters start at 0 for %d modes", got, len(modes))
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			if !slices.ContainsFunc(features, func(f settings.Feature) bool { return f.Mode == mode }) {
				t.Error("settings.Features lacks it")
			}
			if !slices.ContainsFunc(newTerminators(nil, nil, kruiseKinds{}, Options{}), func(of terminator.Terminator) bool { return of.Mode() == mode }) {
				t.Error("newTerminators lacks it")
			}
		})
	}
}

// TestEachFeatureIsInstalled names what the installation lacks for a feature.
func TestEachFeatureIsInstalled(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.Bind(flags)
	roles, err := config.Roles(config.ManagerRoles)
	if err != nil {
		t.Fatal(err)
	}
	policies, err := config.AdmissionPolicies()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("../config/chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	for _, feature := range settings.Features() {
		t.Run(feature.Name, func(t *testing.T) {
			if feature.Role != "" && !slices.ContainsFunc(roles, func(r rbacv1.ClusterRole) bool { return strings.HasSuffix(r.Name, "-"+feature.Role) }) {
				t.Errorf("no role %s", feature.Role)
			}
			if !slices.ContainsFunc(policies, func(p unstructured.Unstructured) bool {
				return strings.HasSuffix(p.GetName(), "-"+feature.AdmissionPolicy)
			}) {
				t.Errorf("no admission policy %s", feature.AdmissionPolicy)
			}
			if value, found, err := unstructured.NestedString(values, strings.Split(feature.ChartValue, ".")...); !found || err != nil || value != "Enabled" {
				t.Errorf("the chart's value %s is %q", feature.ChartValue, value)
			}
			if flags.Lookup(feature.Flag) == nil {
				t.Fatalf("no flag --%s", feature.Flag)
			}
			off, err := settings.Parse([]string{"--" + feature.Flag + "=Disabled"})
			if err != nil || feature.Enabled(off.Capabilities.EnabledModes) {
				t.Errorf("--%s=Disabled leaves it on, error %v", feature.Flag, err)
			}
			for _, other := range settings.Features() {
				if other.Flag != feature.Flag && !other.Enabled(off.Capabilities.EnabledModes) {
					t.Errorf("--%s=Disabled turns %s off", feature.Flag, other.Name)
				}
			}
		})
	}
}
