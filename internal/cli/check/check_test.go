// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/version"
)

// TestRightsAreThoseOfTheManifests holds the list of rights to the roles that are generated from the code.
func TestRightsAreThoseOfTheManifests(t *testing.T) {
	file, err := os.ReadFile("../../../config/rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4096)
	for {
		var role rbacv1.ClusterRole
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			want = append(want, flatten(rule.APIGroups, rule.Resources, rule.ResourceNames, rule.Verbs)...)
		}
	}
	var got []string
	for _, r := range rights {
		var names []string
		if r.name != "" {
			names = []string{r.name}
		}
		got = append(got, flatten([]string{r.group}, []string{r.resource}, names, r.verbs)...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// flatten writes each single right on a line.
func flatten(groups, resources, names, verbs []string) []string {
	if len(names) == 0 {
		names = []string{"*"}
	}
	var all []string
	for _, group := range groups {
		for _, resource := range resources {
			for _, name := range names {
				for _, verb := range verbs {
					all = append(all, strings.Join([]string{group, resource, name, verb}, " "))
				}
			}
		}
	}
	return all
}

func TestVersionsOfKubernetes(t *testing.T) {
	for minor, want := range map[string]level{"29": levelFailure, "30": levelOK, "36": levelOK, "33+": levelOK, "next": levelWarning} {
		c := &checker{version: &version.Info{Major: "1", Minor: minor, GitVersion: "v1." + minor}}
		if err := c.kubernetes(t.Context()); err != nil || c.lines[0].Level != want {
			t.Errorf("version 1.%s: got %+v, %v, want %s", minor, c.lines, err, want)
		}
	}
}

func TestTerminatorGate(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		want      bool
	}{
		"no gates":             {[]string{"--v=5"}, false},
		"other gates":          {[]string{"--feature-gates=AllBeta=true"}, false},
		"the gate":             {[]string{"--feature-gates=AllBeta=true,SidecarTerminator=true"}, true},
		"one dash":             {[]string{"-feature-gates=SidecarTerminator=true"}, true},
		"as an argument apart": {[]string{"--feature-gates", "SidecarTerminator=true"}, true},
		"all alpha ones":       {[]string{"--feature-gates=AllAlpha=true,EnableExternalCerts=false"}, true},
		"all but this one":     {[]string{"--feature-gates=SidecarTerminator=false,AllAlpha=true"}, false},
		"no value":             {[]string{"--feature-gates"}, false},
	} {
		if got := terminatorGate([]corev1.Container{{Args: tc.arguments}}); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
