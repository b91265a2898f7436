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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/version"
)

// The lists of rights are those of the roles, the first of which is generated from the code.
func TestRightsAreThoseOfTheManifests(t *testing.T) {
	const lease = "sidecar-termination-operator.sidecartermination.dev"
	for file, list := range map[string][]right{
		"role.yaml":                 rights,
		"leader_election_role.yaml": leaseRights("sidecar-termination-system", lease),
	} {
		t.Run(file, func(t *testing.T) {
			var got []string
			for _, r := range list {
				var names []string
				if r.name != "" {
					names = []string{r.name}
				}
				got = append(got, flatten([]string{r.group}, []string{r.resource}, names, r.verbs)...)
			}
			want := granted(t, "../../../config/rbac/"+file)
			slices.Sort(want)
			slices.Sort(got)
			if difference := cmp.Diff(want, got); difference != "" {
				t.Errorf("rights (-manifest +check):\n%s", difference)
			}
		})
	}
}

// granted lists the rights of the roles of a file.
func granted(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var role rbacv1.ClusterRole
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			all = append(all, flatten(rule.APIGroups, rule.Resources, rule.ResourceNames, rule.Verbs)...)
		}
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
